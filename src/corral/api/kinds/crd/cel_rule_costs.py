"""A lower bound of Kubernetes' cost estimate of CEL rules: nested loops over unbounded lists.

kube-apiserver adds up the cost of each part of a rule with the largest object that can be sent, and
refuses rules over a budget.  Here only iterations of loops over values of the object are counted,
at 1 each: each rule that this refuses kube-apiserver refuses too, for the same reason.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.cel.syntax_tree import Node

BUDGET: Final = 10_000_000
"""The budget of one rule (apiextensions' StaticEstimatedCostLimit)."""
EXCEEDED: Final = (
    "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or "
    "adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
_LIMIT: Final = 100 * BUDGET
_LARGEST_OBJECT: Final = 3 << 20
"""Bytes of a request (apiserver's MaxRequestSizeBytes)."""
_SCALAR_BYTES: Final = 32
"""Bytes of the smallest value of a scalar type, at most: a duration's."""
_KEY_BYTES: Final = 4
"""Bytes around a field's name."""

SchemaProps = Mapping[str, Any]


def exceeds_budget(tree: Node, ranges: Mapping[int, SchemaProps]) -> bool:
    """Return whether a rule costs over 100 budgets; ``ranges`` are the schemas of its loops."""
    return _min_cost(tree, ranges, frozenset(("self", "oldSelf"))) > _LIMIT


def _min_cost(node: Node, ranges: Mapping[int, SchemaProps], variables: frozenset[str]) -> int:
    if node.kind == "loop":
        return _loop_cost(node, ranges, variables)
    costs = [_min_cost(part, ranges, variables) for part in node.parts]
    if node.text == "_?_:_" and len(costs) == 3:
        return costs[0] + max(costs[1:])
    return sum(costs)


def _loop_cost(node: Node, ranges: Mapping[int, SchemaProps], variables: frozenset[str]) -> int:
    over, start, condition, step, result = node.parts
    item, accumulator, second = node.names
    inside, rounds = variables - {item, accumulator, second}, 0
    if _is_from_object(over, variables):
        rounds = _max_items(ranges.get(node.number, {}))
        inside |= {second or item}
    outside = sum(_min_cost(part, ranges, variables) for part in (over, start))
    outside += _min_cost(result, ranges, variables - {accumulator})
    if not rounds:
        return outside
    return outside + rounds * (
        1 + sum(_min_cost(part, ranges, inside) for part in (condition, step))
    )


def _is_from_object(node: Node, variables: frozenset[str]) -> bool:
    """Return whether a node is a value of the object, whose size the schema bounds."""
    if node.kind == "name":
        return node.text in variables
    return (node.kind == "field" or node.text == "_[_]") and _is_from_object(
        node.parts[0], variables
    )


def _max_items(schema: SchemaProps) -> int:
    """Return the most items of a list or a map: as bounded, else as fit into a request."""
    if schema.get("type") == "array":
        item_bytes = 1 + _min_bytes(schema.get("items"))
        return int(schema.get("maxItems", (_LARGEST_OBJECT - 2) // item_bytes))
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        item_bytes = 6 + _min_bytes(schema["additionalProperties"])
        return int(schema.get("maxProperties", (_LARGEST_OBJECT - 2) // item_bytes))
    return 0


def _min_bytes(schema: Any) -> int:
    """Return the bytes of the smallest value, or a few more."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return _SCALAR_BYTES
    properties = schema.get("properties") or {}
    needed = [name for name in schema.get("required") or () if name in properties]
    return 2 + sum(len(name) + _KEY_BYTES + _min_bytes(properties[name]) for name in needed)
