"""How much work an expression may be: a bound by the size of what it is given.  Pure.

The library bounds the rounds of loops; each round may still look through all of a long text, make a
text twice as long, or copy a long list.  A bound is reckoned from the checked expression: each
value stands for texts of at most some length in collections of at most some count, and each
function for the bytes that it looks at or makes.  One unit is about a nanosecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.api.cel.calls import ENDLESS, JOINING, OF_GIVEN, Size, called, largest_of, text_of
from corral.api.cel.syntax_tree import Node

__all__ = ["MOST_LOOKS", "MOST_ROUNDS", "MOST_WORK", "Size", "looks", "size_of", "work"]

MOST_WORK: Final = 256 << 20
MOST_ROUNDS: Final = 10_000
"""Rounds of all loops together: the library's own bound."""
MOST_LOOKS: Final = 50_000
"""Parts that are looked at to reckon the work of one expression: about a tenth of a second."""
_OF_STEP: Final = 60
"""Units to select a field or to call a function, whatever it does."""
_OF_ROUND: Final = 150
"""Units of a loop's round, whatever it does."""


# ------------------------------------------------------------------- reckoning


def work(node: Node, given: Size) -> int:
    """The most that an expression may be to do with values of at most such a size."""
    reckoning = _Reckoning(given)
    reckoning.size(node, {}, MOST_ROUNDS, 1)
    return min(reckoning.work, ENDLESS)


def looks(node: Node) -> int:
    """How many parts ``work`` looks at: at those of a loop's step three times, for each loop."""
    if node.kind != "loop":
        return 1 + sum(looks(part) for part in node.parts)
    over, start, condition, step, result = node.parts
    around = 1 + looks(over) + looks(start) + looks(result)
    return around if _is_empty(over) else around + looks(condition) + 3 * looks(step)


def size_of(value: Any) -> Size:
    """How large what is given to an expression is."""
    longest, most, whole = 0, 1, 0
    left = [value]
    while left:
        each = left.pop()
        whole += OF_GIVEN
        if isinstance(each, str | bytes):
            longest = max(longest, len(each))
            whole += len(each)
        elif isinstance(each, dict):
            most = max(most, len(each))
            left += each.keys()
            left += each.values()
        elif isinstance(each, list):
            most = max(most, len(each))
            left += each
    return Size(longest, most, most, whole)


@dataclass(slots=True)
class _Reckoning:
    """Adds up the work of an expression."""

    given: Size
    work: int = 0

    def size(self, node: Node, known: Mapping[str, Size], rounds: int, times: int) -> Size:
        """How large a part's value may be.

        ``rounds`` are left for loops in it, and it is reckoned ``times`` times.
        """
        if node.kind == "const":
            return text_of(node.letters)
        if node.kind == "name":
            return known.get(node.text, self.given)
        if node.kind == "loop":
            return self._loop(node, known, rounds, times)
        sizes = [self.size(part, known, rounds, times) for part in node.parts]
        if node.kind in ("list", "map"):
            within = largest_of(sizes)
            whole = sum(size.whole for size in sizes) + OF_GIVEN
            return Size(within.letters, len(sizes), max(within.items, within.inner), whole)
        function = "" if node.kind == "field" else node.text
        if function == "_+_" and any(part.kind == "list" for part in node.parts):
            function = JOINING
        units, size = called(function, sizes)
        self.work += min((units + _OF_STEP) * times, ENDLESS)
        return size

    def _loop(self, node: Node, known: Mapping[str, Size], rounds: int, times: int) -> Size:
        over, start, condition, step, result = node.parts
        ranged = self.size(over, known, rounds, times)
        each = 0 if _is_empty(over) else min(ranged.items, rounds)
        begun = self.size(start, known, rounds, times)
        if each == 0:  # what binds a value to a name is a loop without rounds
            return self.size(result, {**known, node.names[1]: begun}, rounds, times)
        # Each round has another item: all that they hold together is what the range does.
        whole = max(ranged.whole // each, OF_GIVEN)
        each_item = Size(ranged.letters, ranged.inner, ranged.inner, whole)
        inner = {**known, node.names[0]: each_item, node.names[2]: each_item}
        gathered = self._gathered(node, inner, begun, each)
        inner[node.names[1]] = gathered
        self.work += min(_OF_ROUND * each * times, ENDLESS)
        for part in (condition, step):
            self.size(part, inner, max(1, rounds // each), min(times * each, ENDLESS))
        return self.size(result, inner, rounds, times)

    def _gathered(self, node: Node, known: Mapping[str, Size], begun: Size, rounds: int) -> Size:
        """What a loop has gathered in the end: each round may add as much as the first."""
        apart = _Reckoning(self.given)
        step, name = node.parts[3], node.names[1]
        once = apart.size(step, {**known, name: begun}, 1, 1)
        twice = apart.size(step, {**known, name: once}, 1, 1)
        return Size(*(_grown(*sizes, rounds) for sizes in zip(begun, once, twice, strict=True)))


def _is_empty(over: Node) -> bool:
    """Whether a loop has no rounds, whatever it is given."""
    return over.kind in ("list", "map") and not over.parts


def _grown(begun: int, once: int, twice: int, rounds: int) -> int:
    if twice - once > max(once - begun, 0):
        return ENDLESS
    return min(once + (twice - once) * rounds, ENDLESS)
