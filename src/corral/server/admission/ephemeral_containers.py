"""``pods/ephemeralcontainers``: the containers that ``kubectl debug`` adds to a pod.

They are stored and served as by kube-apiserver, but never run: a pod here is a virtual machine.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import forbidden
from corral.api.kinds.core.pod import (
    EPHEMERAL_CONTAINERS,
    IMMUTABLE,
    POD,
    container_causes,
    container_default,
)
from corral.api.object import Document
from corral.server.request.call import Call

_FIELD: Final = "ephemeralContainers"
_PATH: Final = f"spec.{_FIELD}"
_WARNING: Final = (
    "corral runs virtual machines, not containers: nothing runs the ephemeral containers of this "
    "Pod; commands in the guest are run by: kubectl exec"
)


def prepare(call: Call, document: Document, old: Document | None) -> None:
    """Restrict changes of ephemeral containers to their subresource, and that to these changes.

    Raises Invalid for invalid ones, and for changes of existing ones.
    """
    new, previous = at(document, "spec", _FIELD) or [], at(old, "spec", _FIELD) or []
    if old is not None and call.subresource == EPHEMERAL_CONTAINERS:
        document.clear()
        document |= old | {"spec": old["spec"] | {_FIELD: new}}
        for container in new:
            container_default(container)
        causes = list(_faults(document["spec"], previous))
        if new != previous:
            call.warnings.append(_WARNING)
    elif old is None and new:
        causes = [forbidden(_PATH, "cannot be set on create")]
    else:
        causes = [forbidden("spec", IMMUTABLE)] if new != previous else []
    if causes:
        raise POD.invalid(call.name, causes)


def _faults(spec: Document, previous: list[Document]) -> Iterator[Cause]:
    parts = ("containers", "initContainers")
    others = {container["name"] for part in parts for container in spec.get(part) or ()}
    seen = set(others)
    for index, container in enumerate(spec[_FIELD]):
        here = f"{_PATH}[{index}]"
        yield from container_causes(here, container, seen)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield Cause(
                f"{here}.targetContainerName", f'Not found: "{target}"', "FieldValueNotFound"
            )
    yield from _changes({container.get("name"): container for container in spec[_FIELD]}, previous)


def _changes(new: Mapping[Any, Document], previous: list[Document]) -> Iterator[Cause]:
    """Yield faults for existing ephemeral containers that are changed or removed."""
    for container in previous:
        current = new.get(container["name"])
        if current != container:
            word = "removed" if current is None else "changed"
            name = container["name"]
            yield forbidden(_PATH, f'existing ephemeral containers "{name}" may not be {word}\n')
