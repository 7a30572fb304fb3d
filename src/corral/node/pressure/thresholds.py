"""From when on a host is short of something, in a kubelet's words (``--eviction-hard``).  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.api.kinds.core.node_pressure import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from corral.api.quantity import NANO, Amount, Form, parse

NONE: Final = "none"
"""What switches all of it off."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What is watched.

    condition: what the node says when it falls short.
    resource: what there is too little of, as pods request it and messages call it.
    form: how its amounts are written.
    is_ours: whether images and machines take enough of it for their end to help.
    """

    condition: str
    resource: str
    form: Form
    is_ours: bool = True


_DISK = Signal(DISK_PRESSURE, "ephemeral-storage", Form.BINARY)
_INODES = Signal(DISK_PRESSURE, "inodes", Form.DECIMAL, is_ours=False)
SIGNALS: Final[Mapping[str, Signal]] = {
    "memory.available": Signal(MEMORY_PRESSURE, "memory", Form.BINARY),
    "nodefs.available": _DISK,
    "nodefs.inodesFree": _INODES,
    "imagefs.available": _DISK,
    "imagefs.inodesFree": _INODES,
    "pid.available": Signal(PID_PRESSURE, "pids", Form.DECIMAL),
}
"""By its name; memory is seen to first, as a kubelet does."""


@dataclass(frozen=True, slots=True)
class Observation:
    """How much there is of something, and how much is left."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]
"""By signal; one that cannot be observed is absent (inodes of a file system that has none)."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The least of something that a host is to have: an amount, or a share of all of it."""

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
    """A threshold that a host has fallen below, and what it has."""

    threshold: Threshold
    seen: Observation

    def told(self) -> str:
        """What is short, in a kubelet's words (eviction/helpers.go)."""
        form = self.threshold.of.form
        least = Amount(self.threshold.least(self.seen.capacity) * NANO, form)
        left = Amount(self.seen.available * NANO, form)
        return f"Threshold quantity: {least}, available: {left}. "


def parse_thresholds(text: str) -> tuple[Threshold, ...]:
    """``memory.available<100Mi,nodefs.available<10%``; ``none`` for none.  Raises ValueError.

    Zero or a hundred percent switch a threshold off, as they do for a kubelet.
    """
    if text.strip() in ("", NONE):
        return ()
    found = [_threshold(each.strip()) for each in text.split(",")]
    names = [each.signal for each in found]
    if double := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"duplicate eviction threshold specified for {double}")
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


def shortages(thresholds: Sequence[Threshold], seen: Observations) -> Iterator[Shortage]:
    """What a host is short of, in the order in which it is seen to."""
    for each in thresholds:
        observed = seen.get(each.signal)
        if observed is not None and observed.available < each.least(observed.capacity):
            yield Shortage(each, observed)
