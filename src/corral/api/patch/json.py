"""JSON patches (RFC 6902): a list of operations on paths (RFC 6901), all of which must work."""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from corral.api.encoding import copied, encode, same, too_deep
from corral.api.errors import BadRequest, Cause, Details, Invalid, TooLarge
from corral.api.object import Document

MOST_OPERATIONS = 10_000
MOST_COPIED_BYTES = 3 * 1024 * 1024
"""What all ``copy`` operations of a patch may add: a few of them could fill the memory else."""
MOST_SHIFTED = 100_000_000
"""List items that may be moved aside in all: a patch of a long list could take minutes else."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MISSING = object()


def json_patch(document: Document, operations: Any) -> Document:
    """The document with a JSON patch applied.

    Raises BadRequest for what is no patch, TooLarge past ``MOST_OPERATIONS``, and Invalid where an
    operation cannot be carried out: its cause names the path.  One thing is laxer than the RFC, as
    in the real server: ``test`` for null holds where an object lacks the key.
    """
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if len(operations) > MOST_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, "
            f"got {len(operations)}"
        )
    work = _Work({"": copied(document)})
    try:
        for operation in operations:
            work.carry_out(operation)
        patched = work.root.get("")
        if not isinstance(patched, dict):
            _refuse("", "the document is no object any more")
        if too_deep(patched):
            _refuse("", "the document is nested too deeply")
    except RecursionError:
        _refuse("", "the document is nested too deeply")
    return patched


class _Work:
    """The document being patched, under the key "" so that the whole of it can be replaced."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.copied_bytes = 0
        self.shifted = 0

    def carry_out(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise BadRequest("error decoding patch: an operation must be a JSON object")
        name = operation.get("op")
        if not isinstance(name, str) or name not in _OPERATIONS:
            raise BadRequest(f'error decoding patch: unknown operation "{name}"')
        _OPERATIONS[name](self, operation)

    def add(self, operation: Document) -> None:
        self.put(_path(operation, "path"), copied(_value(operation)))

    def remove(self, operation: Document) -> None:
        self.take(_path(operation, "path"))

    def replace(self, operation: Document) -> None:
        path, value = _path(operation, "path"), copied(_value(operation))
        parent, key = self.parent(path)
        if _child(parent, key) is _MISSING:
            _refuse(path, "nothing to replace there")
        parent[_position(parent, key)] = value

    def move(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation, "path")
        if target.startswith(f"{source}/"):
            _refuse(target, "a value cannot be moved into itself")
        self.put(target, self.take(source))

    def copy(self, operation: Document) -> None:
        source, target = _path(operation, "from"), _path(operation, "path")
        value = self.get(source)
        self.copied_bytes += len(encode({"": value}))
        if self.copied_bytes > MOST_COPIED_BYTES:
            _refuse(target, f"the patch copies more than {MOST_COPIED_BYTES} bytes")
        self.put(target, copied(value))

    def test(self, operation: Document) -> None:
        path, wanted = _path(operation, "path"), _value(operation)
        parent, key = self.parent(path)
        value = _child(parent, key)
        if value is _MISSING and isinstance(parent, dict):
            value = None
        if value is _MISSING or not same(value, wanted):
            _refuse(path, "the value there is not the one that the patch tests for")

    def parent(self, path: str) -> tuple[Any, str]:
        """The object or list that the last step of a path is a key or an index of."""
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
        value: Any = self.root
        for step in steps:
            value = _child(value, step)
            if not isinstance(value, dict | list):
                _refuse(path, "no such path")
        return value, last

    def get(self, path: str) -> Any:
        value = _child(*self.parent(path))
        if value is _MISSING:
            _refuse(path, "no such path")
        return value

    def put(self, path: str, value: Any) -> None:
        parent, key = self.parent(path)
        if isinstance(parent, dict):
            parent[key] = value
            return
        index = len(parent) if key == "-" else _position(parent, key)
        if index is None or index > len(parent):
            _refuse(path, "no such index")
        self.shift(path, parent, index)
        parent.insert(index, value)

    def take(self, path: str) -> Any:
        value = self.get(path)
        parent, key = self.parent(path)
        position = _position(parent, key)
        if isinstance(parent, list):
            self.shift(path, parent, position)
        del parent[position]
        return value

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


def _position(parent: Any, key: str) -> Any:
    """What to index the parent with: the key of an object, the number of a list, else None."""
    if isinstance(parent, dict):
        return key
    return int(key) if _INDEX.fullmatch(key) else None


def _child(parent: Any, key: str) -> Any:
    position = _position(parent, key)
    if isinstance(parent, dict):
        return parent.get(position, _MISSING)
    return parent[position] if position is not None and position < len(parent) else _MISSING


def _path(operation: Document, member: str) -> str:
    path = operation.get(member)
    if not isinstance(path, str) or not (path == "" or path.startswith("/")):
        raise BadRequest(
            f'error decoding patch: "{member}" of operation "{operation["op"]}" '
            "must be a path that begins with a slash"
        )
    return path


def _value(operation: Document) -> Any:
    if "value" not in operation:
        raise BadRequest(f'error decoding patch: operation "{operation["op"]}" needs a "value"')
    return operation["value"]


def _refuse(path: str, reason: str) -> NoReturn:
    raise Invalid(
        "the server rejected our request due to an error in our request",
        details=Details(causes=(Cause(path, reason),)),
    )
