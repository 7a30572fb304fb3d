"""JSON patches (RFC 6902): a list of operations on paths (RFC 6901), all of which must work."""

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NoReturn

from corral.api.encoding import DEEPEST, copied, encode, same, too_deep
from corral.api.errors import (
    LONGEST_MESSAGE,
    MOST_CAUSES,
    BadRequest,
    Cause,
    Details,
    Invalid,
    TooLarge,
    shortened,
)
from corral.api.object import Document

MOST_OPERATIONS = 10_000
MOST_COPIED_BYTES = 3 * 1024 * 1024
"""What all ``copy`` operations of a patch may add: a few of them could fill the memory else."""
MOST_SHIFTED = 100_000_000
"""List items that may be moved aside in all: a patch of a long list could take minutes else."""

_INDEX = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_MEMBERS = ("op", "path", "from", "value")


def json_patch(document: Document, operations: Any) -> Document:
    """The document with a JSON patch applied, as the real server's library applies it.

    That is laxer than the RFC: ``replace`` adds what an object lacks, ``copy`` and ``test`` take
    what it lacks for null, as they do a ``value`` that is not said, and negative indices count from
    a list's end (evanphx/json-patch 4).  Raises BadRequest for what is no patch, TooLarge past
    ``MOST_OPERATIONS``, and Invalid where an operation cannot be carried out: its cause names the
    path.
    """
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if not all(isinstance(operation, dict) for operation in operations):
        raise BadRequest("error decoding patch: an operation must be a JSON object")
    if len(operations) > MOST_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, "
            f"got {len(operations)}"
        )
    work = _Work(copied(document))
    try:
        for operation in operations:
            work.carry_out(operation)
        if not isinstance(work.root, dict):
            _refuse("", "the document is no object any more")
        if too_deep(work.root):
            _refuse("", "the document is nested too deeply")
    except RecursionError:
        _refuse("", "the document is nested too deeply")
    return work.root


def unknown_members(operations: Any) -> list[str]:
    """Paths of members that no operation of a JSON patch has."""
    if not isinstance(operations, list):
        return []
    paths = (
        f"[{index}].{shortened(name)}"
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in _MEMBERS
    )
    return list(islice(paths, MOST_CAUSES))


class _Work:
    """The document being patched, and what that has cost."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.copied_bytes = 0
        self.shifted = 0

    def carry_out(self, operation: Document) -> None:
        name = operation.get("op", "unknown")
        if not isinstance(name, str):
            raise BadRequest('error decoding patch: "op" of an operation must be a string')
        if name not in _OPERATIONS:
            _refuse("", f"Unexpected kind: {shortened(name)}")
        _OPERATIONS[name](self, operation)

    def add(self, operation: Document) -> None:
        self.put("add", _path(operation), copied(operation.get("value")))

    def remove(self, operation: Document) -> None:
        path = _path(operation)
        self.take("remove", path, *self.place("remove", path))

    def replace(self, operation: Document) -> None:
        path, value = _path(operation), copied(operation.get("value"))
        if path == "":
            self.root = value
            return
        parent, key = self.place("replace", path)
        parent[_position(path, parent, key)] = value

    def move(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation)
        parent, key = self.place("move", source, "from ")
        value = _child(source, parent, key)
        self.take("move", source, parent, key)
        self.put("move", target, value)

    def copy(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation)
        value = _child(source, *self.place("copy", source, "from "))
        self.copied_bytes += len(encode({"": value}))
        if self.copied_bytes > MOST_COPIED_BYTES:
            _refuse(
                target,
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self.copied_bytes}, exceeding the limit {MOST_COPIED_BYTES}",
            )
        self.put("copy", target, copied(value))

    def test(self, operation: Document) -> None:
        path = _path(operation)
        value = self.root if path == "" else _child(path, *self.place("test", path))
        if not same(value, operation.get("value")):
            _refuse(path, f"testing value {shortened(path)} failed: test failed")

    def place(self, operation: str, path: str, which: str = "") -> tuple[Any, str]:
        """The object or list that the last step of a path is a key or an index of."""
        if path.count("/") > DEEPEST:
            # told of before it is split: nothing is as deep
            _refuse(path, _missing(operation, path, which))
        _, *steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
        value: Any = self.root if steps else None
        for step in steps[:-1]:
            if isinstance(value, list) and _number(value, step) is None:
                value = None
            if not isinstance(value, dict | list):
                break
            value = _child(path, value, step)
        if not isinstance(value, dict | list):
            _refuse(path, _missing(operation, path, which))
        return value, steps[-1]

    def put(self, operation: str, path: str, value: Any) -> None:
        parent, key = self.place(operation, path)
        if isinstance(parent, dict):
            parent[key] = value
            return
        index = len(parent) if key == "-" else _number([*parent, None], key)
        if index is None:
            _refuse(path, _not_an_index(key))
        self.shift(path, parent, index)
        parent.insert(index, value)

    def take(self, operation: str, path: str, parent: Any, key: str) -> None:
        if isinstance(parent, dict) and key not in parent:
            _refuse(
                path,
                f"error in {operation} for path: '{shortened(path)}': "
                f"Unable to remove nonexistent key: {shortened(key)}: missing value",
            )
        position = _position(path, parent, key)
        if isinstance(parent, list):
            self.shift(path, parent, position)
        del parent[position]

    def shift(self, path: str, items: list[Any], index: int) -> None:
        self.shifted += len(items) - index
        if self.shifted > MOST_SHIFTED:
            _refuse(path, "the patch moves too many items of long lists")


_OPERATIONS: dict[str, Callable[[_Work, Document], None]] = {
    "add": _Work.add,
    "remove": _Work.remove,
    "replace": _Work.replace,
    "move": _Work.move,
    "copy": _Work.copy,
    "test": _Work.test,
}


def _number(items: list[Any], key: str) -> int | None:
    """The index of a list that a step says, where there is an item; the last one is -1, too."""
    number = int(key) if _INDEX.fullmatch(key) else len(items)
    if not -len(items) <= number < len(items):
        return None
    return number % len(items)


def _position(path: str, parent: Any, key: str) -> Any:
    """What to index the parent with: the key of an object, the number of an item."""
    if isinstance(parent, dict):
        return key
    index = _number(parent, key)
    if index is None:
        _refuse(path, _not_an_index(key))
    return index


def _child(path: str, parent: Any, key: str) -> Any:
    """What stands at a step: None where an object has no such member."""
    return parent.get(key) if isinstance(parent, dict) else parent[_position(path, parent, key)]


def _path(operation: Document, member: str = "path") -> str:
    path = operation.get(member)
    if path is None:
        _refuse("", f"operation missing {member} field: missing value")
    if not isinstance(path, str):
        raise BadRequest(
            f'error decoding patch: "{member}" of operation "{operation["op"]}" must be a string'
        )
    return path


def _missing(operation: str, path: str, which: str) -> str:
    return (
        f"{operation} operation does not apply: doc is missing {which}path: "
        f'"{shortened(path)}": missing value'
    )


def _not_an_index(key: str) -> str:
    return f"Unable to access invalid index: {shortened(key)}: invalid index referenced"


def _refuse(path: str, reason: str) -> NoReturn:
    raise Invalid(
        "the server rejected our request due to an error in our request",
        details=Details(causes=(Cause(shortened(path, LONGEST_MESSAGE), reason),)),
    )
