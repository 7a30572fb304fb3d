"""Names of resources: of what containers take, and of what quotas count (Kubernetes' core API)."""

from collections.abc import Iterable, Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kinds.causes import each_invalid
from corral.api.names import label_key_faults

COMPUTE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
OF_CONTAINERS: Final = frozenset(COMPUTE_RESOURCES)
"""What every container may ask for, by names without a domain."""
HUGE_PAGES: Final = "hugepages-"
REQUESTS: Final = "requests."
LIMITS: Final = "limits."
STORAGE: Final = "storage"
COUNT: Final = "count/"
_NATIVE: Final = "kubernetes.io/"

OBJECT_COUNTS: Final = frozenset(
    {
        "pods",
        "services",
        "services.nodeports",
        "services.loadbalancers",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
    }
)
"""What quotas count under names of their own: whole numbers."""
OF_QUOTAS: Final = OBJECT_COUNTS | {
    *COMPUTE_RESOURCES,
    *(f"{REQUESTS}{name}" for name in (*COMPUTE_RESOURCES, STORAGE)),
    *(f"{LIMITS}{name}" for name in COMPUTE_RESOURCES),
}
_STANDARD: Final = OF_QUOTAS | {STORAGE}
_HUGE_OF_QUOTAS: Final = (HUGE_PAGES, f"{REQUESTS}{HUGE_PAGES}")


def is_extended(name: str) -> bool:
    """Whether a resource is one that others brought: it has a domain of theirs."""
    return "/" in name and _NATIVE not in name and not name.startswith(REQUESTS)


def is_huge_of_quota(name: str) -> bool:
    return name.startswith(_HUGE_OF_QUOTAS)


def is_extended_of_quota(name: str) -> bool:
    """Whether a quota's name is that of an extended resource's requests."""
    return name.startswith(REQUESTS) and is_extended(name.removeprefix(REQUESTS))


def is_whole(name: str) -> bool:
    """Whether there are no parts of a resource."""
    return name in OBJECT_COUNTS or is_extended(name)


def quota_faults(name: str) -> list[str]:
    """Why no quota can be about this."""
    if "/" in name or name in OF_QUOTAS or is_huge_of_quota(name):
        return faults(name)
    return [*faults(name), "must be a standard resource for quota"]


def container_faults(name: str) -> list[str]:
    """Why no container can ask for this."""
    if "/" in name:
        known = _NATIVE in name or (is_extended(name) and not label_key_faults(REQUESTS + name))
        told = "doesn't follow extended resource name standard"
    else:
        known = name in OF_CONTAINERS or name.startswith(HUGE_PAGES)
        told = "must be a standard resource for containers"
    return faults(name) if known else [*faults(name), told]


def unknown_resources(path: str, names: Iterable[str]) -> Iterator[Cause]:
    """One cause for each fault of the resources that a container asks for."""
    for name in names:
        yield from each_invalid(f"{path}[{name}]", name, container_faults(name))


def faults(name: str) -> list[str]:
    """Why nothing can ask for this."""
    if wrong := label_key_faults(name):
        return wrong
    known = "/" in name or name in _STANDARD or is_huge_of_quota(name)
    return [] if known else ["must be a standard resource type or fully qualified"]
