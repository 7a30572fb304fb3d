"""Which faults an update brings: those of what it leaves as it was are let be.

So an object that was stored before its schema asked for more can be changed elsewhere.  What the
elements of a list were before is not known: a list is the same only as a whole.
"""

import re
from collections.abc import Iterable
from typing import Any

from corral.api.encoding import same
from corral.api.errors import UNCHECKED, Cause
from corral.api.object import Document

_ABOUT = re.compile(r'"(?P<path>[^"]*)" must ')
"""How refusals by alternatives begin, after the value that they do not tell."""
_VALUELESS = 'Invalid value: "": '


def brought(causes: Iterable[Cause], document: Document, old: Document) -> list[Cause]:
    """The faults of what is not as it was."""
    kept = [cause for cause in causes if cause == UNCHECKED or is_changed(cause, document, old)]
    return [] if all(cause == UNCHECKED for cause in kept) else kept


def is_changed(cause: Cause, document: Document, old: Document) -> bool:
    """Whether what a cause is about is not as it was."""
    path = cause.field
    if path == "<nil>" and (match := _ABOUT.match(cause.message.removeprefix(_VALUELESS))):
        path = match["path"]
    if cause.reason == "FieldValueRequired":  # it is its holder who lacks it
        path = path.rpartition(".")[0]
    return _differs(document, old, path)


def _differs(new: Any, old: Any, path: str) -> bool:
    while path and isinstance(new, dict) and isinstance(old, dict):
        name = _first(new, path)
        if name is None or name not in old:
            break
        new, old = new[name], old[name]
        path = path[len(name) :].lstrip(".")
    return not same(new, old)


def _first(value: Document, path: str) -> str | None:
    """The field that a path begins with; its name may hold dots."""
    names = [name for name in value if path == name or path.startswith((f"{name}.", f"{name}["))]
    return max(names, key=len, default=None)
