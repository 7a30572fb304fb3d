"""Usage of resource quotas (Kubernetes' quota evaluators).  Pure.

Admission and the resource quota controller compute usage with the same functions.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec
from lightkube.models.core_v1 import (
    Container,
    PersistentVolumeClaim,
    Pod,
    PodAffinityTerm,
    PodSpec,
    ResourceQuotaSpec,
    ScopedResourceSelectorRequirement,
    Service,
)

from corral.api.kind import Kind
from corral.api.kinds.core import pod_resources, resource_quota
from corral.api.kinds.core.pod import POD, quality_of_service
from corral.api.kinds.core.pod_resources import Amounts, amounts
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.resource_names import (
    COMPUTE_RESOURCES,
    COUNT,
    HUGE_PAGES,
    LIMITS,
    OBJECT_COUNTS,
    REQUESTS,
    STORAGE,
    is_extended,
    is_quota_extended,
    is_quota_huge_pages,
)
from corral.api.kinds.storage.common import OLD_CLASS
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.quantity import NANO, ZERO, Amount, parse

T = TypeVar("T")
_Scopes = frozenset[tuple[str, frozenset[str]]]

ONE: Final = parse("1")
UNCOUNTED: Final = frozenset({"events"})
"""Resources that quotas never count."""
CHANGING: Final = frozenset({SERVICE.resource, CLAIM.resource})
"""Kinds whose usage an update may change."""
CLASS_INFIX: Final = ".storageclass.storage.k8s.io/"
"""Separates a storage class and a resource that is limited for claims of that class."""

_POD_NAMES: Final = frozenset(
    {"pods", *COMPUTE_RESOURCES}
    | {f"{part}{name}" for part in (REQUESTS, LIMITS) for name in COMPUTE_RESOURCES}
)
_SERVICE_NAMES: Final = frozenset({"services", "services.nodeports", "services.loadbalancers"})
_CLAIM_NAMES: Final = ("persistentvolumeclaims", f"{REQUESTS}{STORAGE}")
_MUST_BE_SPECIFIED: Final = tuple(
    name for name in sorted(_POD_NAMES) if name.endswith(("cpu", "memory"))
)
"""Resources that every container of a pod has to specify if a quota limits them."""
_SCOPES_OF: Final[Mapping[str, frozenset[str]]] = {
    POD.resource: frozenset(resource_quota.SCOPES) - {resource_quota.ATTRIBUTES_CLASS},
    CLAIM.resource: frozenset({resource_quota.ATTRIBUTES_CLASS}),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one object, by the names of quotas, and the scopes that it matches.

    scopes: with their values, the names of classes.
    until: from then on the usage is ``rest``: the pod should have terminated, and its node may be
        unreachable.
    """

    amounts: Amounts
    scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    until: datetime | None = None
    rest: Amounts = field(default_factory=dict)

    def at(self, now: datetime) -> Amounts:
        """Return the usage at a moment."""
        return self.amounts if self.until is None or now <= self.until else self.rest


def count_name(kind: Kind) -> str:
    """Return the quota name of the number of objects: ``count/deployments.apps``."""
    return f"{COUNT}{kind.resource}"


def usage_of(kind: Kind, item: Any) -> Usage:
    """Return the usage of an object; ``item`` does not matter for kinds that are only counted."""
    counted = {count_name(kind): ONE}
    match item:
        case Pod():
            return _pod_usage(item, counted)
        case Service():
            return Usage(counted | _service_usage(item))
        case PersistentVolumeClaim():
            return Usage(counted | _claim_usage(item), _claim_scopes(item))
    own_name = kind.resource in OBJECT_COUNTS
    return Usage(counted | ({kind.resource: ONE} if own_name else {}))


def view_of(kind: Kind) -> type[msgspec.Struct] | None:
    """Return the type that objects have to be decoded to; None if they are only counted."""
    return kind.view if kind.resource in (POD.resource, *CHANGING) else None


def matching_names(spec: ResourceQuotaSpec, kind: Kind, usage: Usage) -> list[str]:
    """Return the names in a quota that count an object; none if its scopes do not match."""
    names = sorted(name for name in spec.hard or () if counts_kind(kind, name))
    requirements = [
        ScopedResourceSelectorRequirement(operator="Exists", scopeName=scope)
        for scope in spec.scopes or ()
    ]
    if spec.scopeSelector is not None:
        requirements += spec.scopeSelector.matchExpressions or ()
    supported = _SCOPES_OF.get(kind.resource, frozenset())
    matches = all(
        each.scopeName in supported and _matches_scope(usage, each) for each in requirements
    )
    return names if matches else []


def increase(now: Amounts, before: Amounts) -> Amounts:
    """Return by how much usage increases; decreases are left out."""
    increases = {name: amount - before.get(name, ZERO) for name, amount in now.items()}
    return {name: amount for name, amount in increases.items() if amount > ZERO}


def exceeded(hard: Amounts, used: Amounts, requests: Amounts) -> str:
    """Return the message about exceeded limits; "" if requests fit beside what is used."""
    over = sorted(name for name in requests if used[name] + requests[name] > hard[name])
    if not over:
        return ""
    listed = [",".join(f"{name}={each[name]}" for name in over) for each in (requests, used, hard)]
    return "requested: {}, used: {}, limited: {}".format(*listed)


def unspecified(pod: Pod, names: Iterable[str]) -> str:
    """Return the message about resources that containers must specify, and do not; "" if none."""
    assert pod.spec is not None
    missing = []
    containers = [*pod.spec.containers, *(pod.spec.initContainers or ())]
    for name in sorted(set(names) & set(_MUST_BE_SPECIFIED)):
        unspecified_in = sorted({each.name for each in containers if not _specifies(each, name)})
        if unspecified_in:
            missing.append(f"{name} for: {','.join(unspecified_in)}")
    return f"must specify {'; '.join(missing)}" if missing else ""


@dataclass(slots=True)
class _Group:
    """The total usage of all objects with the same scopes."""

    sample: Usage
    total: Amounts = field(default_factory=dict)
    members: int = 0

    def add(self, used: Amounts) -> None:
        self.members += 1
        for name, amount in used.items():
            self.total[name] = self.total.get(name, ZERO) + amount

    def remove(self, used: Amounts) -> None:
        self.members -= 1
        for name, amount in used.items():
            self.total[name] -= amount


class UsageTotals(Generic[T]):
    """The usage of the objects of a kind, computed once for each version of an object.

    Totals are updated incrementally, so that one more object among thousands costs little.
    """

    def __init__(self, kind: Kind, usage_of: Callable[[T], Usage]) -> None:
        self._kind = kind
        self._usage_of = usage_of
        self._usages: dict[Hashable, Usage] = {}
        self._groups: dict[_Scopes, _Group] = {}
        self._ending: dict[Hashable, Usage] = {}
        """Usages with an ``until``, which are in no total."""

    def update(self, objects: Iterable[tuple[Hashable, T]]) -> None:
        """Update the totals to the current objects, each with a key that identifies its version."""
        newest = dict(objects)
        for version in self._usages.keys() - newest.keys():
            usage = self._usages.pop(version)
            if self._ending.pop(version, None) is None:
                group = self._group(usage)
                group.remove(usage.amounts)
                if not group.members:
                    del self._groups[_scopes(usage)]
        for version in newest.keys() - self._usages.keys():
            usage = self._usages[version] = self._usage_of(newest[version])
            if usage.until is not None:
                self._ending[version] = usage
            else:
                self._group(usage).add(usage.amounts)

    def used(self, spec: ResourceQuotaSpec, now: datetime) -> Amounts:
        """Return the usage of a quota, by the names that count this kind."""
        total = {name: ZERO for name in spec.hard or () if counts_kind(self._kind, name)}
        parts = [(each.sample, each.total) for each in self._groups.values()]
        parts += [(each, each.at(now)) for each in self._ending.values()]
        for sample, used in parts:
            for name in matching_names(spec, self._kind, sample):
                total[name] += used.get(name, ZERO)
        return total

    def next_decrease(self, now: datetime) -> datetime | None:
        """Return when usage next decreases without a change of an object."""
        ends = (each.until for each in self._ending.values() if each.until is not None)
        return min((each for each in ends if each >= now), default=None)

    def _group(self, usage: Usage) -> _Group:
        return self._groups.setdefault(_scopes(usage), _Group(usage))


def _scopes(usage: Usage) -> _Scopes:
    return frozenset(usage.scopes.items())


def counts_kind(kind: Kind, name: str) -> bool:
    """Report whether a name in a quota counts objects of a kind."""
    if name == count_name(kind):
        return True
    if kind.resource == POD.resource:
        return name in _POD_NAMES or is_quota_huge_pages(name) or is_quota_extended(name)
    if kind.resource == SERVICE.resource:
        return name in _SERVICE_NAMES
    if kind.resource == CLAIM.resource:
        return name.rpartition(CLASS_INFIX)[2] in _CLAIM_NAMES
    return name == kind.resource and name in OBJECT_COUNTS


def _matches_scope(usage: Usage, requirement: ScopedResourceSelectorRequirement) -> bool:
    values = usage.scopes.get(requirement.scopeName)
    match requirement.operator:
        case "Exists":
            return values is not None
        case "DoesNotExist":
            return values is None
        case "In":
            return bool((values or frozenset()) & set(requirement.values or ()))
        case _:  # NotIn: true if any class is not listed, or if there is none
            return values is None or bool(values - set(requirement.values or ()))


# ------------------------------------------------------------------------------------------- pods


def _pod_usage(pod: Pod, counted: Amounts) -> Usage:
    assert pod.spec is not None
    scopes = _pod_scopes(pod)
    if pod.status is not None and pod.status.phase in ("Succeeded", "Failed"):
        return Usage(counted, scopes)
    used = _quota_names(pod_resources.requests(pod.spec), pod_resources.limits(pod.spec))
    until = _unreachable_after(pod)
    return Usage(counted | {"pods": ONE} | used, scopes, until, counted)


def _quota_names(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits by the names of quotas."""
    used: Amounts = {}
    for name, amount in requests.items():
        if name in COMPUTE_RESOURCES or name.startswith(HUGE_PAGES):
            used |= {name: amount, f"{REQUESTS}{name}": amount}
        elif is_extended(name):
            used[f"{REQUESTS}{name}"] = amount
    return used | {f"{LIMITS}{name}": limits[name] for name in COMPUTE_RESOURCES if name in limits}


def _specifies(container: Container, name: str) -> bool:
    resources = container.resources
    if resources is None:
        return False
    return name in _quota_names(amounts(resources.requests), amounts(resources.limits))


def _unreachable_after(pod: Pod) -> datetime | None:
    """Return the deletion time of a terminating pod plus its grace period, as Kubernetes does."""
    metadata = pod.metadata
    if metadata is None or metadata.deletionTimestamp is None:
        return None
    if metadata.deletionGracePeriodSeconds is None:
        return None
    try:
        return metadata.deletionTimestamp + timedelta(seconds=metadata.deletionGracePeriodSeconds)
    except OverflowError:
        return None  # stored before grace periods were bounded


def _pod_scopes(pod: Pod) -> dict[str, frozenset[str]]:
    assert pod.spec is not None
    spec, nothing = pod.spec, frozenset[str]()
    ends = spec.activeDeadlineSeconds is not None
    best_effort = quality_of_service({"spec": msgspec.to_builtins(spec)}) == "BestEffort"
    scopes = {
        resource_quota.TERMINATING if ends else resource_quota.NOT_TERMINATING: nothing,
        resource_quota.BEST_EFFORT if best_effort else resource_quota.NOT_BEST_EFFORT: nothing,
    }
    if spec.priorityClassName:
        scopes[resource_quota.PRIORITY_CLASS] = frozenset({spec.priorityClassName})
    if any(term.namespaces or term.namespaceSelector is not None for term in _affinity_terms(spec)):
        scopes[resource_quota.CROSS_NAMESPACE] = nothing
    return scopes


def _affinity_terms(spec: PodSpec) -> list[PodAffinityTerm]:
    """Return the affinity and anti-affinity terms of a pod."""
    affinity = spec.affinity
    found: list[PodAffinityTerm] = []
    for part in (affinity.podAffinity, affinity.podAntiAffinity) if affinity is not None else ():
        if part is not None:
            found += part.requiredDuringSchedulingIgnoredDuringExecution or ()
            preferred = part.preferredDuringSchedulingIgnoredDuringExecution or ()
            found += (each.podAffinityTerm for each in preferred)
    return found


# --------------------------------------------------------------------------- services and claims


def _service_usage(service: Service) -> Amounts:
    spec = service.spec
    kind = (spec and spec.type) or ""
    ports = (spec and spec.ports) or []
    if kind == "LoadBalancer" and spec is not None and spec.allocateLoadBalancerNodePorts is False:
        node_ports = sum(bool(port.nodePort) for port in ports)
    else:
        node_ports = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    return {
        "services": ONE,
        "services.nodeports": Amount(node_ports * NANO),
        "services.loadbalancers": ONE if kind == "LoadBalancer" else ZERO,
    }


def _claim_usage(claim: PersistentVolumeClaim) -> Amounts:
    used = {_CLAIM_NAMES[0]: ONE}
    requests = pod_resources.of_claim(claim)
    if STORAGE in requests:
        granted = amounts(claim.status.allocatedResources if claim.status is not None else None)
        used[_CLAIM_NAMES[1]] = max(requests[STORAGE], granted.get(STORAGE, ZERO))
    annotations = (claim.metadata and claim.metadata.annotations) or {}
    named = annotations.get(OLD_CLASS) or (claim.spec and claim.spec.storageClassName)
    if named:
        used |= {f"{named}{CLASS_INFIX}{name}": amount for name, amount in used.items()}
    return used


def _claim_scopes(claim: PersistentVolumeClaim) -> dict[str, frozenset[str]]:
    spec, status = claim.spec, claim.status
    named = [spec.volumeAttributesClassName] if spec is not None else []
    if status is not None:
        named.append(status.currentVolumeAttributesClassName)
        if status.modifyVolumeStatus is not None:
            named.append(status.modifyVolumeStatus.targetVolumeAttributesClassName)
    classes = frozenset(each for each in named if each)
    return {resource_quota.ATTRIBUTES_CLASS: classes} if classes else {}
