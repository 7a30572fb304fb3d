"""Estimates the cost of an expression: an upper bound by the size of its input.  Pure.

The library bounds the iterations of loops; each may still scan a long text, double one, or copy a
long list.  The estimate walks the checked expression: each value is represented by maximum
lengths and counts, and each function by the bytes that it reads or writes.  One unit of cost is
about a nanosecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.api.cel.calls import (
    CONVERSION,
    JOINING,
    UNBOUNDED,
    Size,
    call_cost,
    largest_of,
    text_of,
)
from corral.api.cel.syntax_tree import Node

__all__ = ["MAX_COST", "MAX_ITERATIONS", "MAX_VISITS", "Size", "estimate", "size_of", "visits"]

MAX_COST: Final = 256 << 20
MAX_ITERATIONS: Final = 10_000
"""Iterations of all loops together: the library's own bound."""
MAX_VISITS: Final = 50_000
"""Nodes that an estimate may visit: about a tenth of a second."""
_STEP: Final = 60
"""Cost to select a field or to call a function, besides the work of the function."""
_ITERATION: Final = 150
"""Cost of an iteration, besides its condition and step."""


def estimate(node: Node, given: Size) -> int:
    """Return the maximum cost of an expression for values of at most a size."""
    estimator = _Estimator(given)
    estimator.size(node, {}, MAX_ITERATIONS, 1)
    return min(estimator.cost, UNBOUNDED)


def visits(node: Node) -> int:
    """Return how many nodes ``estimate`` visits: the step of each loop three times."""
    if node.kind != "loop":
        return 1 + sum(visits(part) for part in node.parts)
    over, start, condition, step, result = node.parts
    outside = 1 + visits(over) + visits(start) + visits(result)
    return outside if _is_empty(over) else outside + visits(condition) + 3 * visits(step)


def size_of(value: Any) -> Size:
    """Return the size of an input."""
    longest, most, conversion = 0, 1, 0
    left = [value]
    while left:
        each = left.pop()
        conversion += CONVERSION
        if isinstance(each, str | bytes):
            longest = max(longest, len(each))
            conversion += len(each)
        elif isinstance(each, dict):
            most = max(most, len(each))
            left += each.keys()
            left += each.values()
        elif isinstance(each, list):
            most = max(most, len(each))
            left += each
    return Size(longest, most, most, conversion)


@dataclass(slots=True)
class _Estimator:
    """Adds up the cost of an expression."""

    given: Size
    cost: int = 0

    def size(self, node: Node, variables: Mapping[str, Size], iterations: int, times: int) -> Size:
        """Return the maximum size of a node's value, and add the cost of the node.

        iterations: left for loops in it.
        times: how often it is evaluated.
        """
        if node.kind == "const":
            return text_of(node.characters)
        if node.kind == "name":
            return variables.get(node.text, self.given)
        if node.kind == "loop":
            return self._loop(node, variables, iterations, times)
        sizes = [self.size(part, variables, iterations, times) for part in node.parts]
        if node.kind in ("list", "map"):
            within = largest_of(sizes)
            conversion = sum(size.conversion for size in sizes) + CONVERSION
            return Size(
                within.characters, len(sizes), max(within.items, within.inner_items), conversion
            )
        function = "" if node.kind == "field" else node.text
        if function == "_+_" and any(part.kind == "list" for part in node.parts):
            function = JOINING
        units, size = call_cost(function, sizes)
        self.cost += min((units + _STEP) * times, UNBOUNDED)
        return size

    def _loop(self, node: Node, variables: Mapping[str, Size], iterations: int, times: int) -> Size:
        over, start, condition, step, result = node.parts
        ranged = self.size(over, variables, iterations, times)
        each = 0 if _is_empty(over) else min(ranged.items, iterations)
        initial = self.size(start, variables, iterations, times)
        if each == 0:  # cel.bind() expands to a loop without iterations
            return self.size(result, {**variables, node.names[1]: initial}, iterations, times)
        # The conversion cost of the range is that of all its items together.
        conversion = max(ranged.conversion // each, CONVERSION)
        item = Size(ranged.characters, ranged.inner_items, ranged.inner_items, conversion)
        inner = {**variables, node.names[0]: item, node.names[2]: item}
        inner[node.names[1]] = self._accumulated(node, inner, initial, each)
        self.cost += min(_ITERATION * each * times, UNBOUNDED)
        for part in (condition, step):
            self.size(part, inner, max(1, iterations // each), min(times * each, UNBOUNDED))
        return self.size(result, inner, iterations, times)

    def _accumulated(
        self, node: Node, variables: Mapping[str, Size], initial: Size, iterations: int
    ) -> Size:
        """Return the final size of the accumulator: each iteration may add what the second adds."""
        estimator = _Estimator(self.given)
        step, name = node.parts[3], node.names[1]
        first = estimator.size(step, {**variables, name: initial}, 1, 1)
        second = estimator.size(step, {**variables, name: first}, 1, 1)
        return Size(
            *(
                _extrapolated(*sizes, iterations)
                for sizes in zip(initial, first, second, strict=True)
            )
        )


def _is_empty(over: Node) -> bool:
    """Report whether a loop never iterates, whatever its input."""
    return over.kind in ("list", "map") and not over.parts


def _extrapolated(initial: int, first: int, second: int, iterations: int) -> int:
    if second - first > max(first - initial, 0):
        return UNBOUNDED
    return min(first + (second - first) * iterations, UNBOUNDED)
