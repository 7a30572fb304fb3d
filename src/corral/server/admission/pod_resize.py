"""``pods/resize``: changes of CPU and memory of a pod while it runs (Kubernetes 1.33).

The node applies changed limits at once.  Requests count for the scheduler and for quotas.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import forbidden, invalid
from corral.api.kinds.core.pod import IMMUTABLE, POD, RESIZE, quality_of_service
from corral.api.object import Document
from corral.api.quantity import ZERO, amount
from corral.server.request.call import Call

_PARTS: Final = ("containers", "initContainers")
_RESIZABLE: Final = ("cpu", "memory")
_ONLY: Final = "only cpu and memory resources are mutable"
_CONTAINERS: Final = "containers may not be added, removed or renamed by a resize"
_QOS: Final = "Pod QOS Class may not change as a result of resizing"


def prepare(call: Call, document: Document, old: Document | None) -> None:
    """Restrict changes of resources to their subresource, and that to these changes.

    Raises Invalid.
    """
    if old is None:
        return
    if call.subresource != RESIZE:
        if _resources(document) != _resources(old):
            raise POD.invalid(call.name, [forbidden("spec", IMMUTABLE)])
        return
    requested = _resources(document)
    if requested.keys() != _resources(old).keys():
        raise POD.invalid(call.name, [forbidden("spec", _CONTAINERS)])
    document.clear()
    document |= old | {"spec": _resized(old["spec"], requested)}
    if causes := list(_faults(document, old)):
        raise POD.invalid(call.name, causes)


def _resources(document: Document) -> Mapping[tuple[str, str], Any]:
    """Return the resources of each container, by part and name."""
    return {
        (part, container.get("name") or ""): container.get("resources") or {}
        for part in _PARTS
        for container in at(document, "spec", part) or ()
    }


def _resized(spec: Document, requested: Mapping[tuple[str, str], Any]) -> Document:
    """Return a pod's spec with the requested resources."""
    changed = dict(spec)
    for part in _PARTS:
        if containers := spec.get(part):
            changed[part] = [
                {**one, "resources": requested[part, one["name"]]} for one in containers
            ]
    return changed


def _faults(document: Document, old: Document) -> Iterator[Cause]:
    before = _resources(old)
    for (part, name), resources in _resources(document).items():
        path = f"spec.{part}[{name}].resources"
        if _rest(resources) != _rest(before[part, name]):
            yield forbidden(path, _ONLY)
        for values in ("limits", "requests"):
            removed = (before[part, name].get(values) or {}).keys() - (resources.get(values) or {})
            if not removed.isdisjoint(_RESIZABLE):
                yield forbidden(f"{path}.{values}", f"resource {values} cannot be removed")
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for resource in _RESIZABLE:
            limit, request = amount(limits.get(resource)), amount(requests.get(resource))
            if ZERO < limit < request:
                message = f"must be less than or equal to {resource} limit of {limit}"
                yield invalid(f"{path}.requests", str(requests[resource]), message)
    if quality_of_service(document) != quality_of_service(old):
        yield invalid("spec", quality_of_service(document), _QOS)


def _rest(resources: Document) -> Document:
    """Return resources without those that can be resized."""
    return {
        part: {name: value for name, value in (values or {}).items() if name not in _RESIZABLE}
        if isinstance(values, dict)
        else values
        for part, values in resources.items()
    }
