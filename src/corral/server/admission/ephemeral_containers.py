"""``pods/ephemeralcontainers``: what ``kubectl debug`` adds to a pod.

It is stored and shown as the real server does it, and nothing runs it: a pod here is a machine.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import forbidden
from corral.api.kinds.core.pod import IMMUTABLE, POD, container_causes, container_default
from corral.api.object import Document
from corral.server.request.call import Call, Prepare, storage

(DOOR,) = POD.parts
_FIELD: Final = "ephemeralContainers"
_PATH: Final = f"spec.{_FIELD}"
_WARNING: Final = (
    "corral runs virtual machines, not containers: nothing runs the ephemeral containers of this "
    "Pod; commands in the guest are run by: kubectl exec"
)


def prepare(call: Call, document: Document, old: Document | None) -> None:
    """Let ephemeral containers come by their own door only, and nothing else by that one.

    Raises Invalid for those that cannot be, or that are not as they were.
    """
    wanted, known = at(document, "spec", _FIELD) or [], at(old, "spec", _FIELD) or []
    if old is not None and call.subresource == DOOR:
        document.clear()
        document |= old | {"spec": old["spec"] | {_FIELD: wanted}}
        for container in wanted:
            container_default(container)
        causes = list(_faults(document["spec"], known))
        if wanted != known:
            call.warnings.append(_WARNING)
    elif old is None and wanted:
        causes = [forbidden(_PATH, "cannot be set on create")]
    else:
        causes = [forbidden("spec", IMMUTABLE)] if wanted != known else []
    if causes:
        raise POD.invalid(call.name, causes)


def _faults(spec: Document, known: list[Document]) -> Iterator[Cause]:
    parts = ("containers", "initContainers")
    others = {one["name"] for part in parts for one in spec.get(part) or ()}
    seen = set(others)
    for index, container in enumerate(spec[_FIELD]):
        here = f"{_PATH}[{index}]"
        yield from container_causes(here, container, seen)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield Cause(
                f"{here}.targetContainerName", f'Not found: "{target}"', "FieldValueNotFound"
            )
    yield from _changes({one.get("name"): one for one in spec[_FIELD]}, known)


def _changes(wanted: Mapping[Any, Document], known: list[Document]) -> Iterator[Cause]:
    """An ephemeral container stays as it was added."""
    for one in known:
        found = wanted.get(one["name"])
        if found != one:
            word = "removed" if found is None else "changed"
            name = one["name"]
            yield forbidden(_PATH, f'existing ephemeral containers "{name}" may not be {word}\n')


PREPARERS: Final[Mapping[str, Prepare]] = {storage(POD): prepare}
