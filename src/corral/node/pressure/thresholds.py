"""Eviction thresholds, in a kubelet's syntax (``--eviction-hard``).  No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.api.kinds.core.node_pressure import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from corral.api.quantity import NANO, Amount, Form, parse

NONE: Final = "none"
"""The value that disables eviction."""


@dataclass(frozen=True, slots=True)
class Signal:
    """An eviction signal.

    condition: the node condition of a shortage.
    resource: the resource, as pods request it and messages name it.
    form: the format of its amounts.
    is_ours: whether removing images and machines can help.
    """

    condition: str
    resource: str
    form: Form
    is_reclaimable: bool = True


_DISK = Signal(DISK_PRESSURE, "ephemeral-storage", Form.BINARY)
_INODES = Signal(DISK_PRESSURE, "inodes", Form.DECIMAL, is_reclaimable=False)
SIGNALS: Final[Mapping[str, Signal]] = {
    "memory.available": Signal(MEMORY_PRESSURE, "memory", Form.BINARY),
    "nodefs.available": _DISK,
    "nodefs.inodesFree": _INODES,
    "imagefs.available": _DISK,
    "imagefs.inodesFree": _INODES,
    "pid.available": Signal(PID_PRESSURE, "pids", Form.DECIMAL),
}
"""Signals by name, memory first: it is handled first, as by a kubelet."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The available amount of a resource, and its capacity."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]
"""Observations by signal; one that cannot be observed is absent (inodes of some file systems)."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The minimum of a resource: an amount, or a share of the capacity."""

    signal: str
    amount: int | None = None
    share: float = 0.0

    def least(self, capacity: int) -> int:
        return int(capacity * self.share) if self.amount is None else self.amount

    @property
    def of(self) -> Signal:
        return SIGNALS[self.signal]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A threshold that is met, and the observation."""

    threshold: Threshold
    observation: Observation

    def describe(self) -> str:
        """Return the message of the shortage, as a kubelet's (eviction/helpers.go)."""
        form = self.threshold.of.form
        least = Amount(self.threshold.least(self.observation.capacity) * NANO, form)
        left = Amount(self.observation.available * NANO, form)
        return f"Threshold quantity: {least}, available: {left}. "


def parse_thresholds(text: str) -> tuple[Threshold, ...]:
    """Parse ``memory.available<100Mi,nodefs.available<10%``; ``none`` for none.  Raises ValueError.

    Zero or a hundred percent disable a threshold, as for a kubelet.
    """
    if text.strip() in ("", NONE):
        return ()
    found = [_threshold(each.strip()) for each in text.split(",")]
    names = [each.signal for each in found]
    if duplicate := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"duplicate eviction threshold specified for {duplicate}")
    order = list(SIGNALS)
    found.sort(key=lambda each: order.index(each.signal))
    return tuple(each for each in found if each.amount is not None or 0 < each.share < 1)


def _threshold(text: str) -> Threshold:
    signal, operator, value = text.partition("<")
    if not operator or not value:
        raise ValueError(
            f"invalid eviction threshold syntax {text}, expected <signal><operator><value>"
        )
    if signal not in SIGNALS:
        raise ValueError(f"unsupported eviction signal {signal}: known are {', '.join(SIGNALS)}")
    if value.endswith("%"):
        return Threshold(signal, share=_share(signal, value))
    try:
        amount = parse(value).rounded_up()
    except ValueError as error:
        raise ValueError(f"eviction threshold {signal}: {value} is no quantity") from error
    if amount < 0:
        raise ValueError(f"eviction threshold {signal} must be positive: {value}")
    return Threshold(signal, amount=amount)


def _share(signal: str, text: str) -> float:
    try:
        percent = float(text[:-1])
    except ValueError as error:
        raise ValueError(f"eviction threshold {signal}: {text} is no share") from error
    if not 0 <= percent <= 100:
        raise ValueError(f"eviction percentage threshold {signal} must be from 0% to 100%: {text}")
    return percent / 100


def shortages(thresholds: Sequence[Threshold], observation: Observations) -> Iterator[Shortage]:
    """Return the thresholds that are met, in the order in which they are handled."""
    for each in thresholds:
        observed = observation.get(each.signal)
        if observed is not None and observed.available < each.least(observed.capacity):
            yield Shortage(each, observed)
