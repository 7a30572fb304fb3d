"""What a rule costs at the least, by Kubernetes' reckoning: where loops in loops have no bounds.

The real server adds up what each part of a rule may cost with the largest object that can be sent,
and refuses what is over a budget.  Here only the rounds of loops over what is in the object are
counted, as one each: what that refuses the real server refuses too, and for the same reason.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.cel.syntax_tree import Node

BUDGET: Final = 10_000_000
"""What one rule may cost (apiextensions' StaticEstimatedCostLimit)."""
EXCEEDED: Final = (
    "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or "
    "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
_FAR_OVER: Final = 100 * BUDGET
_LARGEST_OBJECT: Final = 3 << 20
"""Bytes of a request (apiserver's MaxRequestSizeBytes)."""
_OF_SCALAR: Final = 32
"""Bytes that the smallest value of any type has at the most: a duration's."""
_OF_KEY: Final = 4
"""Bytes around a field's name."""

Told = Mapping[str, Any]


def is_far_over(tree: Node, ranges: Mapping[int, Told]) -> bool:
    """Whether a rule costs more than a hundred budgets; ``ranges`` are what its loops go over."""
    return _least(tree, ranges, frozenset(("self", "oldSelf"))) > _FAR_OVER


def _least(node: Node, ranges: Mapping[int, Told], given: frozenset[str]) -> int:
    if node.kind == "loop":
        return _of_loop(node, ranges, given)
    costs = [_least(part, ranges, given) for part in node.parts]
    if node.text == "_?_:_" and len(costs) == 3:
        return costs[0] + max(costs[1:])
    return sum(costs)


def _of_loop(node: Node, ranges: Mapping[int, Told], given: frozenset[str]) -> int:
    over, start, condition, step, result = node.parts
    item, gathered, second = node.names
    within, rounds = given - {item, gathered, second}, 0
    if _is_given(over, given):
        rounds = _most_items(ranges.get(node.number, {}))
        within |= {second or item}
    around = sum(_least(part, ranges, given) for part in (over, start))
    around += _least(result, ranges, given - {gathered})
    if not rounds:
        return around
    return around + rounds * (1 + sum(_least(part, ranges, within) for part in (condition, step)))


def _is_given(node: Node, given: frozenset[str]) -> bool:
    """Whether a part is something in the object, of which a schema tells the size."""
    if node.kind == "name":
        return node.text in given
    return (node.kind == "field" or node.text == "_[_]") and _is_given(node.parts[0], given)


def _most_items(schema: Told) -> int:
    """How many items there may be in a list or a map, or in the largest that can be sent."""
    if schema.get("type") == "array":
        room = 1 + _smallest(schema.get("items"))
        return int(schema.get("maxItems", (_LARGEST_OBJECT - 2) // room))
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        room = 6 + _smallest(schema["additionalProperties"])
        return int(schema.get("maxProperties", (_LARGEST_OBJECT - 2) // room))
    return 0


def _smallest(schema: Any) -> int:
    """Bytes that the smallest value has, or a few more."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return _OF_SCALAR
    properties = schema.get("properties") or {}
    needed = [name for name in schema.get("required") or () if name in properties]
    return 2 + sum(len(name) + _OF_KEY + _smallest(properties[name]) for name in needed)
