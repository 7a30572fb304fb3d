"""Names of resources of containers and of quotas (Kubernetes' core API)."""

from collections.abc import Iterable, Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kinds.causes import each_invalid
from corral.api.names import label_key_faults

COMPUTE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
CONTAINER_RESOURCES: Final = frozenset(COMPUTE_RESOURCES)
"""Resources of containers that have no domain."""
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
"""Objects that quotas count by names of their own; the amounts are integers."""
QUOTA_RESOURCES: Final = OBJECT_COUNTS | {
    *COMPUTE_RESOURCES,
    *(f"{REQUESTS}{name}" for name in (*COMPUTE_RESOURCES, STORAGE)),
    *(f"{LIMITS}{name}" for name in COMPUTE_RESOURCES),
}
_STANDARD: Final = QUOTA_RESOURCES | {STORAGE}
_QUOTA_HUGE_PAGES: Final = (HUGE_PAGES, f"{REQUESTS}{HUGE_PAGES}")


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one: it has a domain."""
    return "/" in name and _NATIVE not in name and not name.startswith(REQUESTS)


def is_quota_huge_pages(name: str) -> bool:
    return name.startswith(_QUOTA_HUGE_PAGES)


def is_quota_extended(name: str) -> bool:
    """Return whether a quota's resource is the requests of an extended resource."""
    return name.startswith(REQUESTS) and is_extended(name.removeprefix(REQUESTS))


def is_whole(name: str) -> bool:
    """Return whether amounts of a resource are integers."""
    return name in OBJECT_COUNTS or is_extended(name)


def quota_faults(name: str) -> list[str]:
    """Return why a name is not a valid resource of quotas."""
    if "/" in name or name in QUOTA_RESOURCES or is_quota_huge_pages(name):
        return faults(name)
    return [*faults(name), "must be a standard resource for quota"]


def container_faults(name: str) -> list[str]:
    """Return why a name is not a valid resource of containers."""
    if "/" in name:
        is_known = _NATIVE in name or (is_extended(name) and not label_key_faults(REQUESTS + name))
        fault = "doesn't follow extended resource name standard"
    else:
        is_known = name in CONTAINER_RESOURCES or name.startswith(HUGE_PAGES)
        fault = "must be a standard resource for containers"
    return faults(name) if is_known else [*faults(name), fault]


def unknown_resources(path: str, names: Iterable[str]) -> Iterator[Cause]:
    """Yield a cause for each invalid resource of a container."""
    for name in names:
        yield from each_invalid(f"{path}[{name}]", name, container_faults(name))


def faults(name: str) -> list[str]:
    """Return why a name is not a valid resource."""
    if wrong := label_key_faults(name):
        return wrong
    is_known = "/" in name or name in _STANDARD or is_quota_huge_pages(name)
    return [] if is_known else ["must be a standard resource type or fully qualified"]
