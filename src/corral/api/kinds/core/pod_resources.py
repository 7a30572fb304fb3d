"""What pods and claims ask for in all: of a node, and of a quota (k8s.io/component-helpers).

Containers run beside each other, and so do the init containers that are never done (sidecars); the
other init containers run one by one, each beside the sidecars that were started before it.
"""

from collections.abc import Iterable, Mapping

from lightkube.models.core_v1 import Container, PersistentVolumeClaim, PodSpec

from corral.api.kinds.resource_names import HUGE_PAGES
from corral.api.object import Quantity
from corral.api.quantity import NOTHING, Amount, amount

Amounts = dict[str, Amount]
ALWAYS = "Always"
"""The restart policy that makes a sidecar of an init container."""
REQUESTS = "requests"
LIMITS = "limits"
_OF_PODS = ("cpu", "memory")
"""What can be asked for a pod as a whole, beside huge pages."""


def requests(spec: PodSpec) -> Amounts:
    """What the pod asks for, by resource."""
    return added(of_containers(spec, REQUESTS), amounts(spec.overhead))


def limits(spec: PodSpec) -> Amounts:
    """What the pod may take at most; a resource without a limit is absent."""
    total = of_containers(spec, LIMITS)
    own = {name: one for name, one in amounts(spec.overhead).items() if total.get(name)}
    return added(total, own)


def of_claim(claim: PersistentVolumeClaim) -> Amounts:
    """What a claim asks for."""
    resources = claim.spec.resources if claim.spec is not None else None
    return amounts(resources.requests) if resources is not None else {}


def is_sidecar(container: Container) -> bool:
    """Whether an init container runs for as long as its pod."""
    return container.restartPolicy == ALWAYS


def amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    """Quantities as amounts."""
    return {name: amount(quantity) for name, quantity in (quantities or {}).items()}


def added(total: Amounts, more: Amounts) -> Amounts:
    """Both together."""
    return {**total, **{name: total.get(name, NOTHING) + one for name, one in more.items()}}


def of_containers(spec: PodSpec, part: str) -> Amounts:
    """The pod's REQUESTS or LIMITS without its overhead."""
    total: Amounts = {}
    for container in spec.containers:
        total = added(total, _of(container, part))
    total = _greater(total, _initial(spec.initContainers or (), part), of=_sidecars(spec, part))
    return total | _of_whole(spec, part)


def _of_whole(spec: PodSpec, part: str) -> Amounts:
    """What is said of the pod as a whole: it counts instead of what its containers say."""
    said = amounts(getattr(spec.resources, part)) if spec.resources is not None else {}
    return {
        name: one for name, one in said.items() if name in _OF_PODS or name.startswith(HUGE_PAGES)
    }


def _greater(running: Amounts, initial: Amounts, *, of: Amounts) -> Amounts:
    """The more of what the pod takes when it runs, sidecars and all, and when it begins."""
    running = added(running, of)
    names = {**running, **initial}
    return {name: max(running.get(name, NOTHING), initial.get(name, NOTHING)) for name in names}


def _sidecars(spec: PodSpec, part: str) -> Amounts:
    total: Amounts = {}
    for container in filter(is_sidecar, spec.initContainers or ()):
        total = added(total, _of(container, part))
    return total


def _initial(containers: Iterable[Container], part: str) -> Amounts:
    """The most that init containers take at one time."""
    started: Amounts = {}
    most: Amounts = {}
    for container in containers:
        now = added(started, _of(container, part))
        if is_sidecar(container):
            started = now
        most = {name: max(most.get(name, NOTHING), now.get(name, NOTHING)) for name in most | now}
    return most


def _of(container: Container, part: str) -> Amounts:
    return amounts(getattr(container.resources, part)) if container.resources is not None else {}
