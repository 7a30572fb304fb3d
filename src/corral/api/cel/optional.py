"""Where optional values may stand: the library cannot give one to Python, and breaks if it has to.

So they are let be where the library itself takes them, and are refused in lists and maps, as what
functions are given, and as what an expression is.
"""

from typing import Final

from corral.api.cel.syntax_tree import Node

_TAKERS: Final = frozenset(
    {"hasValue", "value", "orValue", "or", "optional.of", "_?._", "_[?_]", "_[_]"}
    | {"_?_:_", "_==_", "_!=_"}
)


def misplaced(root: Node, optionals: frozenset[int]) -> Node | None:
    """What stands where an optional value must not, if anything; ``optionals`` are all."""
    if root.number in optionals:
        return root
    left = [root] if optionals else []
    while left:
        node = left.pop()
        for index, part in enumerate(node.parts):
            if part.number in optionals and not _takes(node, index):
                return part
        left += node.parts
    return None


def _takes(node: Node, index: int) -> bool:
    if node.kind == "loop":
        return index > 0  # what it gathers may be one, what it goes through may not hold any
    if node.kind in ("list", "map"):
        return index in node.perhaps
    return node.kind == "field" or node.text in _TAKERS
