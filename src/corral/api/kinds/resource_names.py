"""Names of resources: of what containers take, and of what quotas count (Kubernetes' core API)."""

from typing import Final

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
    known = name in OF_QUOTAS or is_huge_of_quota(name)
    return _faults(name, known, "must be a standard resource for quota")


def container_faults(name: str) -> list[str]:
    """Why no container can ask for this."""
    known = name in OF_CONTAINERS or name.startswith(HUGE_PAGES)
    return _faults(name, known, "must be a standard resource for containers")


def faults(name: str) -> list[str]:
    """Why nothing can ask for this."""
    known = name in _STANDARD or is_huge_of_quota(name)
    return _faults(name, known, "must be a standard resource type or fully qualified")


def _faults(name: str, known: bool, unknown: str) -> list[str]:  # noqa: FBT001 - private
    if wrong := label_key_faults(name):
        return wrong
    return [] if "/" in name or known else [unknown]
