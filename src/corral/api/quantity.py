"""Quantities such as ``64M``, ``1Gi`` and ``500m`` (Kubernetes' resource.Quantity).

An amount is an integer of billionths: finer values are rounded away from zero, and the maximum is
2**63 - 1.  The format (binary SI, decimal SI or exponent) is kept, so that a sum with ``1Gi`` is
printed in ``Gi`` again.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, total_ordering

NANO = 10**9
LARGEST = (2**63 - 1) * NANO

_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[eEinumkKMGTP]*)(?P<exponent>[-+]?[0-9]*)",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"": 0, "Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LONGEST_TEXT = 200
_MAX_EXPONENT = 300  # beyond it every amount is the largest, or a billionth


class Form(Enum):
    """The format of an amount."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """An exact amount in billionths.  Comparison and hash ignore the format."""

    nanos: int
    form: Form = Form.DECIMAL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.nanos == other.nanos

    def __lt__(self, other: "Amount") -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.nanos - other.nanos, self.form if self.nanos else other.form)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the canonical text: no fraction, the largest suffix that allows it."""
        if self.form is Form.BINARY and abs(self.nanos) >= 1024 * NANO and self.nanos % NANO == 0:
            count, power = _without_factor(self.nanos // NANO, 1024, 6)
            return f"{count}{_suffix(_BINARY, power)}"
        count, power = _without_factor(self.nanos, 1000, 9)
        exponent = 3 * power - 9
        if self.form is Form.EXPONENT:
            return f"{count}e{exponent}" if exponent else f"{count}"
        return f"{count}{_suffix(_DECIMAL, exponent)}"

    def rounded_up(self, scale: int = 0) -> int:
        """Return the amount in units of 10**scale, rounded up."""
        unit: int = 10 ** (9 + scale)
        return -(-self.nanos // unit)


ZERO = Amount(0)


def parse(quantity: str | float) -> Amount:
    """Parse a quantity.  Raises ValueError with the real server's message."""
    return _parse(quantity if isinstance(quantity, str) else str(quantity))


@lru_cache(maxsize=1024)
def canonical(quantity: str | float) -> str:
    """Return the canonical text of a quantity: ``500m`` for ``0.5``.  Raises ValueError."""
    return str(parse(quantity))


def bytes_of(quantity: str | float) -> int:
    """Return the value of a quantity, rounded up to an integer."""
    return parse(quantity).rounded_up()


def amount(quantity: str | float | None) -> Amount:
    """Parse a quantity; zero if it is None or invalid."""
    try:
        return ZERO if quantity is None else parse(quantity)
    except ValueError:
        return ZERO  # the schema refuses it


@lru_cache(maxsize=1024)
def _parse(text: str) -> Amount:
    match = _SHAPE.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None or not text:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    fraction = match["fraction"] or ""
    digits = match["whole"] + fraction
    if not digits:
        raise ValueError("unable to parse numeric part of quantity")
    base, power, form = _suffix_meaning(match["suffix"] + match["exponent"])
    numerator = int(digits) * NANO
    if power >= 0:
        numerator *= base**power
    denominator = 10 ** len(fraction) * (base**-power if power < 0 else 1)
    nanos = min(-(-numerator // denominator), LARGEST)
    if form is Form.BINARY and nanos < NANO:
        form = Form.DECIMAL
    return Amount(-nanos if match["sign"] == "-" else nanos, form)


def _suffix_meaning(suffix: str) -> tuple[int, int, Form]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], Form.DECIMAL
    if suffix in _BINARY:
        return 1024, _BINARY[suffix], Form.BINARY
    if re.fullmatch(r"[eE][-+]?[0-9]+", suffix):
        exponent = int(suffix[1:])
        return 10, max(-_MAX_EXPONENT, min(exponent, _MAX_EXPONENT)), Form.EXPONENT
    raise ValueError("unable to parse quantity's suffix")


def _suffix(suffixes: dict[str, int], power: int) -> str:
    return next(suffix for suffix, value in suffixes.items() if value == power)


def _without_factor(count: int, factor: int, limit: int) -> tuple[int, int]:
    """Divide by a factor while it goes evenly, at most ``limit`` times; return count, power."""
    power = 0
    if count == 0:
        return 0, 3 if factor == 1000 else 0
    while power < limit and count % factor == 0:
        count //= factor
        power += 1
    return count, power
