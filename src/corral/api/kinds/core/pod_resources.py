"""Total resource requests and limits of pods and PVCs (k8s.io/component-helpers).

Containers run concurrently, and so do init containers that are sidecars; other init containers run
one by one, each beside the sidecars that were started before it.
"""

from collections.abc import Iterable, Mapping

from lightkube.models.core_v1 import Container, PersistentVolumeClaim, PodSpec

from corral.api.kinds.resource_names import HUGE_PAGES
from corral.api.object import Quantity
from corral.api.quantity import ZERO, Amount, amount

Amounts = dict[str, Amount]
ALWAYS = "Always"
"""The restart policy that makes a sidecar of an init container."""
REQUESTS = "requests"
LIMITS = "limits"
_POD_LEVEL = ("cpu", "memory")
"""Pod-level resources, beside huge pages."""


def requests(spec: PodSpec) -> Amounts:
    """Return the requests of a pod by resource."""
    return added(of_containers(spec, REQUESTS), amounts(spec.overhead))


def limits(spec: PodSpec) -> Amounts:
    """Return the limits of a pod; a resource without a limit is absent."""
    total = of_containers(spec, LIMITS)
    own = {name: one for name, one in amounts(spec.overhead).items() if total.get(name)}
    return added(total, own)


def of_claim(claim: PersistentVolumeClaim) -> Amounts:
    """Return the requests of a PVC."""
    resources = claim.spec.resources if claim.spec is not None else None
    return amounts(resources.requests) if resources is not None else {}


def is_sidecar(container: Container) -> bool:
    """Return whether an init container runs for as long as its pod."""
    return container.restartPolicy == ALWAYS


def amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    """Parse quantities."""
    return {name: amount(quantity) for name, quantity in (quantities or {}).items()}


def added(total: Amounts, more: Amounts) -> Amounts:
    """Return the sums of both."""
    return {**total, **{name: total.get(name, ZERO) + one for name, one in more.items()}}


def of_containers(spec: PodSpec, part: str) -> Amounts:
    """Return the pod's REQUESTS or LIMITS without its overhead."""
    total: Amounts = {}
    for container in spec.containers:
        total = added(total, _container_resources(container, part))
    total = _max_of_phases(
        total, _init_phase(spec.initContainers or (), part), of=_sidecars(spec, part)
    )
    return total | _pod_level(spec, part)


def _pod_level(spec: PodSpec, part: str) -> Amounts:
    """Return the pod-level resources, which override those of its containers."""
    specified = amounts(getattr(spec.resources, part)) if spec.resources is not None else {}
    return {
        name: one
        for name, one in specified.items()
        if name in _POD_LEVEL or name.startswith(HUGE_PAGES)
    }


def _max_of_phases(running: Amounts, initial: Amounts, *, of: Amounts) -> Amounts:
    """Return the greater of the resources of the running pod and of its init phase."""
    running = added(running, of)
    names = {**running, **initial}
    return {name: max(running.get(name, ZERO), initial.get(name, ZERO)) for name in names}


def _sidecars(spec: PodSpec, part: str) -> Amounts:
    total: Amounts = {}
    for container in filter(is_sidecar, spec.initContainers or ()):
        total = added(total, _container_resources(container, part))
    return total


def _init_phase(containers: Iterable[Container], part: str) -> Amounts:
    """Return the most resources that init containers use at a time."""
    started: Amounts = {}
    most: Amounts = {}
    for container in containers:
        now = added(started, _container_resources(container, part))
        if is_sidecar(container):
            started = now
        most = {name: max(most.get(name, ZERO), now.get(name, ZERO)) for name in most | now}
    return most


def _container_resources(container: Container, part: str) -> Amounts:
    return amounts(getattr(container.resources, part)) if container.resources is not None else {}
