"""JSON patch (RFC 6902): a list of operations on JSON pointers (RFC 6901), applied all or none."""

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NoReturn

from corral.api.encoding import DEEPEST, copied, encode, same, too_deep
from corral.api.errors import (
    LONGEST_MESSAGE,
    MAX_CAUSES,
    BadRequest,
    Cause,
    Details,
    Invalid,
    TooLarge,
    shortened,
)
from corral.api.object import Document

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Most bytes that the ``copy`` operations of a patch add: copies of copies grow exponentially."""
MAX_SHIFTED = 100_000_000
"""List items that all operations may shift: a patch of a long list could take minutes."""

_INDEX = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_MEMBERS = ("op", "path", "from", "value")


def json_patch(document: Document, operations: Any) -> Document:
    """Apply a JSON patch as the real server's library does (evanphx/json-patch 4).

    That is laxer than the RFC: ``replace`` adds a missing member, ``copy`` and ``test`` read a
    missing member, and a missing ``value``, as null, and negative indices count from a list's end.
    Raises BadRequest for an invalid patch, TooLarge past ``MAX_OPERATIONS``, and Invalid if an
    operation fails: its cause names the path.
    """
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if not all(isinstance(operation, dict) for operation in operations):
        raise BadRequest("error decoding patch: an operation must be a JSON object")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
    patching = _Patching(copied(document))
    try:
        for operation in operations:
            patching.run(operation)
        if not isinstance(patching.root, dict):
            _refuse("", "the document is no object any more")
        if too_deep(patching.root):
            _refuse("", "the document is nested too deeply")
    except RecursionError:
        _refuse("", "the document is nested too deeply")
    return patching.root


def unknown_members(operations: Any) -> list[str]:
    """Return the paths of unknown members in the operations of a JSON patch."""
    if not isinstance(operations, list):
        return []
    paths = (
        f"[{index}].{shortened(name)}"
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in _MEMBERS
    )
    return list(islice(paths, MAX_CAUSES))


class _Patching:
    """The document being patched, and the cost so far."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.copied_bytes = 0
        self.shifted = 0

    def run(self, operation: Document) -> None:
        name = operation.get("op", "unknown")
        if not isinstance(name, str):
            raise BadRequest('error decoding patch: "op" of an operation must be a string')
        if name not in _OPERATIONS:
            _refuse("", f"Unexpected kind: {shortened(name)}")
        _OPERATIONS[name](self, operation)

    def add(self, operation: Document) -> None:
        self.insert("add", _path(operation), copied(operation.get("value")))

    def remove(self, operation: Document) -> None:
        path = _path(operation)
        self.delete("remove", path, *self.locate("remove", path))

    def replace(self, operation: Document) -> None:
        path, value = _path(operation), copied(operation.get("value"))
        if path == "":
            self.root = value
            return
        parent, key = self.locate("replace", path)
        parent[_position(path, parent, key)] = value

    def move(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation)
        parent, key = self.locate("move", source, "from ")
        value = _child(source, parent, key)
        self.delete("move", source, parent, key)
        self.insert("move", target, value)

    def copy(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation)
        value = _child(source, *self.locate("copy", source, "from "))
        self.copied_bytes += len(encode({"": value}))
        if self.copied_bytes > MAX_COPIED_BYTES:
            _refuse(
                target,
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self.copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}",
            )
        self.insert("copy", target, copied(value))

    def test(self, operation: Document) -> None:
        path = _path(operation)
        value = self.root if path == "" else _child(path, *self.locate("test", path))
        if not same(value, operation.get("value")):
            _refuse(path, f"testing value {shortened(path)} failed: test failed")

    def locate(self, operation: str, path: str, which: str = "") -> tuple[Any, str]:
        """Return the parent of the value at a path, and its key or index there."""
        if path.count("/") > DEEPEST:
            # Refuse before the path is split: no document is as deep.
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

    def insert(self, operation: str, path: str, value: Any) -> None:
        parent, key = self.locate(operation, path)
        if isinstance(parent, dict):
            parent[key] = value
            return
        index = len(parent) if key == "-" else _number([*parent, None], key)
        if index is None:
            _refuse(path, _not_an_index(key))
        self.shift(path, parent, index)
        parent.insert(index, value)

    def delete(self, operation: str, path: str, parent: Any, key: str) -> None:
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
        if self.shifted > MAX_SHIFTED:
            _refuse(path, "the patch moves too many items of long lists")


_OPERATIONS: dict[str, Callable[[_Patching, Document], None]] = {
    "add": _Patching.add,
    "remove": _Patching.remove,
    "replace": _Patching.replace,
    "move": _Patching.move,
    "copy": _Patching.copy,
    "test": _Patching.test,
}


def _number(items: list[Any], key: str) -> int | None:
    """Return the index of the item that a step names; None if there is none.  -1 is the last."""
    number = int(key) if _INDEX.fullmatch(key) else len(items)
    if not -len(items) <= number < len(items):
        return None
    return number % len(items)


def _position(path: str, parent: Any, key: str) -> Any:
    """Return the subscript of a step: the key of an object, or the index of a list."""
    if isinstance(parent, dict):
        return key
    index = _number(parent, key)
    if index is None:
        _refuse(path, _not_an_index(key))
    return index


def _child(path: str, parent: Any, key: str) -> Any:
    """Return the value at a step; None if an object has no such member."""
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
