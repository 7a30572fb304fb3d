"""What objects take of the quotas of their namespace (Kubernetes' quota evaluators).  Pure.

The server asks before it stores an object, the loop that tells what is used asks afterwards; both
reckon with the same charges.
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
from corral.api.quantity import NANO, NOTHING, Amount, parse

T = TypeVar("T")
_Scopes = frozenset[tuple[str, frozenset[str]]]

ONE: Final = parse("1")
UNCOUNTED: Final = frozenset({"events"})
"""Objects that no quota is about."""
CHANGING: Final = frozenset({SERVICE.resource, CLAIM.resource})
"""Kinds whose objects may take more when they are changed; of others only new ones do."""
OF_CLASS: Final = ".storageclass.storage.k8s.io/"
"""Between a storage class and what is counted of its claims alone."""

_OF_PODS: Final = frozenset(
    {"pods", *COMPUTE_RESOURCES}
    | {f"{part}{name}" for part in (REQUESTS, LIMITS) for name in COMPUTE_RESOURCES}
)
_OF_SERVICES: Final = frozenset({"services", "services.nodeports", "services.loadbalancers"})
_OF_CLAIMS: Final = ("persistentvolumeclaims", f"{REQUESTS}{STORAGE}")
_MUST_BE_SAID: Final = tuple(name for name in sorted(_OF_PODS) if name.endswith(("cpu", "memory")))
"""What every container of a pod has to name where a quota is about it."""
_SCOPES_OF: Final[Mapping[str, frozenset[str]]] = {
    POD.resource: frozenset(resource_quota.SCOPES) - {resource_quota.ATTRIBUTES_CLASS},
    CLAIM.resource: frozenset({resource_quota.ATTRIBUTES_CLASS}),
}


@dataclass(frozen=True, slots=True)
class Charge:
    """What one object takes, by the names that quotas have for it, and the scopes that it is in.

    ``scopes`` have their values: the classes that they name.  From ``until`` on a pod takes no more
    than ``rest``: it should be gone, and may be on a node that nobody hears of.
    """

    amounts: Amounts
    scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    until: datetime | None = None
    rest: Amounts = field(default_factory=dict)

    def at(self, now: datetime) -> Amounts:
        """What it takes at a moment."""
        return self.amounts if self.until is None or now <= self.until else self.rest


def count_name(kind: Kind) -> str:
    """The name under which every object of a kind counts: ``count/deployments.apps``."""
    return f"{COUNT}{kind.resource}"


def charge(kind: Kind, item: Any) -> Charge:
    """What an object takes; of kinds that are only counted, whatever ``item`` is."""
    counted = {count_name(kind): ONE}
    match item:
        case Pod():
            return _of_pod(item, counted)
        case Service():
            return Charge(counted | _of_service(item))
        case PersistentVolumeClaim():
            return Charge(counted | _of_claim(item), _claim_scopes(item))
    own_name = kind.resource in OBJECT_COUNTS
    return Charge(counted | ({kind.resource: ONE} if own_name else {}))


def view_of(kind: Kind) -> type[msgspec.Struct] | None:
    """What has to be known of a kind's objects; None where it is enough that they are there."""
    return kind.view if kind.resource in (POD.resource, *CHANGING) else None


def concerns(spec: ResourceQuotaSpec, kind: Kind, charged: Charge) -> list[str]:
    """What of an object a quota is about, by name: nothing, for objects outside of its scopes."""
    names = sorted(name for name in spec.hard or () if is_about(kind, name))
    wanted = [
        ScopedResourceSelectorRequirement(operator="Exists", scopeName=scope)
        for scope in spec.scopes or ()
    ]
    if spec.scopeSelector is not None:
        wanted += spec.scopeSelector.matchExpressions or ()
    known = _SCOPES_OF.get(kind.resource, frozenset())
    inside = all(one.scopeName in known and _is_in(charged, one) for one in wanted)
    return names if inside else []


def more(now: Amounts, before: Amounts) -> Amounts:
    """By how much an object takes more than it did; what it takes less of is left out."""
    grown = {name: one - before.get(name, NOTHING) for name, one in now.items()}
    return {name: one for name, one in grown.items() if one > NOTHING}


def exceeded(hard: Amounts, taken: Amounts, asked: Amounts) -> str:
    """Which bounds do not hold what is asked for beside what is taken; empty where all do."""
    over = sorted(name for name in asked if taken[name] + asked[name] > hard[name])
    if not over:
        return ""
    listed = [",".join(f"{name}={each[name]}" for name in over) for each in (asked, taken, hard)]
    return "requested: {}, used: {}, limited: {}".format(*listed)


def unsaid(pod: Pod, names: Iterable[str]) -> str:
    """What containers of a pod have to name because a quota is about it, and do not."""
    assert pod.spec is not None
    told = []
    containers = [*pod.spec.containers, *(pod.spec.initContainers or ())]
    for name in sorted(set(names) & set(_MUST_BE_SAID)):
        silent = sorted({each.name for each in containers if not _says(each, name)})
        if silent:
            told.append(f"{name} for: {','.join(silent)}")
    return f"must specify {'; '.join(told)}" if told else ""


@dataclass(slots=True)
class _Group:
    """What all objects take together that are in the same scopes."""

    like: Charge
    total: Amounts = field(default_factory=dict)
    members: int = 0

    def add(self, taken: Amounts) -> None:
        self.members += 1
        for name, one in taken.items():
            self.total[name] = self.total.get(name, NOTHING) + one

    def remove(self, taken: Amounts) -> None:
        self.members -= 1
        for name, one in taken.items():
            self.total[name] -= one


class Charges(Generic[T]):
    """What the objects of a kind take, reckoned once for each version of each of them.

    Sums are kept, so that one object more among thousands costs little.
    """

    def __init__(self, kind: Kind, reckon: Callable[[T], Charge]) -> None:
        self._kind = kind
        self._reckon = reckon
        self._known: dict[Hashable, Charge] = {}
        self._groups: dict[_Scopes, _Group] = {}
        self._ending: dict[Hashable, Charge] = {}
        """Those that take less from some moment on: they are in no sum."""

    def follow(self, objects: Iterable[tuple[Hashable, T]]) -> None:
        """Take in which objects there are now; each comes with what tells its version."""
        newest = dict(objects)
        for version in self._known.keys() - newest.keys():
            charged = self._known.pop(version)
            if self._ending.pop(version, None) is None:
                group = self._group(charged)
                group.remove(charged.amounts)
                if not group.members:
                    del self._groups[_scopes(charged)]
        for version in newest.keys() - self._known.keys():
            charged = self._known[version] = self._reckon(newest[version])
            if charged.until is not None:
                self._ending[version] = charged
            else:
                self._group(charged).add(charged.amounts)

    def used(self, spec: ResourceQuotaSpec, now: datetime) -> Amounts:
        """What they take of a quota, by every name that is about their kind."""
        total = {name: NOTHING for name in spec.hard or () if is_about(self._kind, name)}
        parts = [(each.like, each.total) for each in self._groups.values()]
        parts += [(each, each.at(now)) for each in self._ending.values()]
        for like, taken in parts:
            for name in concerns(spec, self._kind, like):
                total[name] += taken.get(name, NOTHING)
        return total

    def next_end(self, now: datetime) -> datetime | None:
        """When any of them will take less, all by itself."""
        ends = (each.until for each in self._ending.values() if each.until is not None)
        return min((each for each in ends if each >= now), default=None)

    def _group(self, charged: Charge) -> _Group:
        return self._groups.setdefault(_scopes(charged), _Group(charged))


def _scopes(charged: Charge) -> _Scopes:
    return frozenset(charged.scopes.items())


def is_about(kind: Kind, name: str) -> bool:
    """Whether a quota's name for something is one that objects of a kind take of."""
    if name == count_name(kind):
        return True
    if kind.resource == POD.resource:
        return name in _OF_PODS or is_quota_huge_pages(name) or is_quota_extended(name)
    if kind.resource == SERVICE.resource:
        return name in _OF_SERVICES
    if kind.resource == CLAIM.resource:
        return name.rpartition(OF_CLASS)[2] in _OF_CLAIMS
    return name == kind.resource and name in OBJECT_COUNTS


def _is_in(charged: Charge, wanted: ScopedResourceSelectorRequirement) -> bool:
    values = charged.scopes.get(wanted.scopeName)
    match wanted.operator:
        case "Exists":
            return values is not None
        case "DoesNotExist":
            return values is None
        case "In":
            return bool((values or frozenset()) & set(wanted.values or ()))
        case _:  # NotIn: one class outside is enough, as is none at all
            return values is None or bool(values - set(wanted.values or ()))


# ------------------------------------------------------------------------------------------- pods


def _of_pod(pod: Pod, counted: Amounts) -> Charge:
    assert pod.spec is not None
    scopes = _pod_scopes(pod)
    if pod.status is not None and pod.status.phase in ("Succeeded", "Failed"):
        return Charge(counted, scopes)
    taken = _named(pod_resources.requests(pod.spec), pod_resources.limits(pod.spec))
    until = _lost_after(pod)
    return Charge(counted | {"pods": ONE} | taken, scopes, until, counted)


def _named(requests: Amounts, limits: Amounts) -> Amounts:
    """Requests and limits under the names that quotas have for them."""
    taken: Amounts = {}
    for name, one in requests.items():
        if name in COMPUTE_RESOURCES or name.startswith(HUGE_PAGES):
            taken |= {name: one, f"{REQUESTS}{name}": one}
        elif is_extended(name):
            taken[f"{REQUESTS}{name}"] = one
    return taken | {f"{LIMITS}{name}": limits[name] for name in COMPUTE_RESOURCES if name in limits}


def _says(container: Container, name: str) -> bool:
    resources = container.resources
    if resources is None:
        return False
    return name in _named(amounts(resources.requests), amounts(resources.limits))


def _lost_after(pod: Pod) -> datetime | None:
    """When a pod that is being deleted has had its grace for a second time."""
    metadata = pod.metadata
    if metadata is None or metadata.deletionTimestamp is None:
        return None
    if metadata.deletionGracePeriodSeconds is None:
        return None
    try:
        return metadata.deletionTimestamp + timedelta(seconds=metadata.deletionGracePeriodSeconds)
    except OverflowError:
        return None  # from before there was a bound of grace: never, as far as anybody can tell


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
    if any(term.namespaces or term.namespaceSelector is not None for term in _terms(spec)):
        scopes[resource_quota.CROSS_NAMESPACE] = nothing
    return scopes


def _terms(spec: PodSpec) -> list[PodAffinityTerm]:
    """Every wish of a pod to be near other pods, or far from them."""
    affinity = spec.affinity
    found: list[PodAffinityTerm] = []
    for part in (affinity.podAffinity, affinity.podAntiAffinity) if affinity is not None else ():
        if part is not None:
            found += part.requiredDuringSchedulingIgnoredDuringExecution or ()
            preferred = part.preferredDuringSchedulingIgnoredDuringExecution or ()
            found += (each.podAffinityTerm for each in preferred)
    return found


# --------------------------------------------------------------------------- services and claims


def _of_service(service: Service) -> Amounts:
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
        "services.loadbalancers": ONE if kind == "LoadBalancer" else NOTHING,
    }


def _of_claim(claim: PersistentVolumeClaim) -> Amounts:
    taken = {_OF_CLAIMS[0]: ONE}
    asked = pod_resources.of_claim(claim)
    if STORAGE in asked:
        granted = amounts(claim.status.allocatedResources if claim.status is not None else None)
        taken[_OF_CLAIMS[1]] = max(asked[STORAGE], granted.get(STORAGE, NOTHING))
    annotations = (claim.metadata and claim.metadata.annotations) or {}
    named = annotations.get(OLD_CLASS) or (claim.spec and claim.spec.storageClassName)
    if named:
        taken |= {f"{named}{OF_CLASS}{name}": one for name, one in taken.items()}
    return taken


def _claim_scopes(claim: PersistentVolumeClaim) -> dict[str, frozenset[str]]:
    spec, status = claim.spec, claim.status
    named = [spec.volumeAttributesClassName] if spec is not None else []
    if status is not None:
        named.append(status.currentVolumeAttributesClassName)
        if status.modifyVolumeStatus is not None:
            named.append(status.modifyVolumeStatus.targetVolumeAttributesClassName)
    classes = frozenset(each for each in named if each)
    return {resource_quota.ATTRIBUTES_CLASS: classes} if classes else {}
