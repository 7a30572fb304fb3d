"""Which pods stand behind a Service, under which addresses and ports, and in which condition."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from lightkube.models.core_v1 import ObjectReference, Pod, Service, ServiceSpec
from lightkube.models.discovery_v1 import Endpoint, EndpointConditions, EndpointPort

from corral.api.object import Key
from corral.reconcile.objects import is_being_deleted, is_ready, key_of, labels_of, uid_of

FAMILIES = {"IPv4": 4, "IPv6": 6}
"""The words of ``spec.ipFamilies`` and of an EndpointSlice's ``addressType``."""
HEADLESS = "None"
"""The ``clusterIP`` of a Service that has none and wants none."""
ENDED = frozenset({"Succeeded", "Failed"})


class Port(NamedTuple):
    """A port of a Service as it is on the pods; ``number`` 0 stands for all of them."""

    name: str
    protocol: str
    number: int
    app_protocol: str | None = None

    def in_slice(self) -> EndpointPort:
        """The port as an EndpointSlice tells it."""
        return EndpointPort(
            name=self.name,
            protocol=self.protocol,
            port=self.number,
            appProtocol=self.app_protocol,
        )


def spec_of(service: Service) -> ServiceSpec:
    return service.spec or ServiceSpec()


def is_selecting(service: Service) -> bool:
    """Whether the pods of a Service are found by their labels.

    Not so without a selector, nor where the Service is only another name for a host.
    """
    spec = spec_of(service)
    return bool(spec.selector) and spec.type != "ExternalName"


def is_headless(service: Service) -> bool:
    return spec_of(service).clusterIP in (HEADLESS, "", None)


def families(service: Service) -> Sequence[str]:
    """IPv4, IPv6 or both, the Service's first family first."""
    return spec_of(service).ipFamilies or ["IPv4"]


def matches(service: Service, labels: Mapping[str, str]) -> bool:
    """Whether a pod of these labels is one of the Service's."""
    selector = spec_of(service).selector or {}
    return all(labels.get(key) == value for key, value in selector.items())


def members(service: Service, pods: Iterable[Pod]) -> list[Pod]:
    """The Service's pods that have an address and have not ended, by name."""
    found = [
        pod for pod in pods if matches(service, labels_of(pod)) and not has_ended(pod) and ips(pod)
    ]
    return sorted(found, key=lambda pod: key_of(pod).name)


def has_ended(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in ENDED


def ips(pod: Pod) -> list[str]:
    """Every address of a pod.

    Its host's is one only where the pod is on the host's network: a machine behind a user network
    tells where its host is, and whoever calls there reaches the host's own ports.
    """
    status = pod.status
    if status is None:
        return []
    listed = [each.ip for each in status.podIPs or () if each.ip]
    told = listed or ([status.podIP] if status.podIP else [])
    if pod.spec is not None and pod.spec.hostNetwork:
        return told
    hosts = {status.hostIP, *(each.ip for each in status.hostIPs or ())}
    return [ip for ip in told if ip not in hosts]


def address(pod: Pod, family: str) -> str:
    """The pod's address of a family, or nothing."""
    return next((ip for ip in ips(pod) if (":" in ip) == (family == "IPv6")), "")


def ready_since(pod: Pod) -> datetime | None:
    """When the pod last became ready, or ceased to be."""
    conditions = (pod.status and pod.status.conditions) or ()
    return next((each.lastTransitionTime for each in conditions if each.type == "Ready"), None)


def hostname(service: Service, pod: Pod) -> str | None:
    """The pod's own name under the Service's, where it asks for that one as its subdomain."""
    spec = pod.spec
    if spec is None or not spec.hostname or spec.subdomain != key_of(service).name:
        return None
    return spec.hostname


def node(pod: Pod) -> str | None:
    return (pod.spec and pod.spec.nodeName) or None


def target(pod: Pod) -> ObjectReference:
    """Names the pod that has an address."""
    key = key_of(pod)
    return ObjectReference(kind="Pod", namespace=key.namespace, name=key.name, uid=uid_of(pod))


def ports(service: Service, pod: Pod) -> tuple[Port, ...]:
    """The Service's ports as they are on this pod; a named one that it does not have is left out.

    Only a headless Service may have none at all.
    """
    named = _named(pod)
    found = []
    for port in spec_of(service).ports or ():
        protocol, wanted = port.protocol or "TCP", port.targetPort or port.port
        number = wanted if isinstance(wanted, int) else named.get((wanted, protocol))
        if number is not None:
            found.append(Port(port.name or "", protocol, number, port.appProtocol or None))
    return tuple(found)


def _named(pod: Pod) -> dict[tuple[str, str], int]:
    """The ports of a pod by name and protocol: both it and a Service may have thousands."""
    named: dict[tuple[str, str], int] = {}
    for container in (pod.spec and pod.spec.containers) or ():
        for offered in container.ports or ():
            if offered.name:
                key = offered.name, offered.protocol or "TCP"
                named.setdefault(key, offered.containerPort)
    return named


def endpoint(service: Service, pod: Pod, family: str) -> Endpoint | None:
    """The pod as an EndpointSlice tells of it, or nothing where it has no address of the family.

    Who is going is not ready, whatever its probe says; it may serve on until it is gone.
    """
    ip = address(pod, family)
    if not ip:
        return None
    serving, terminating = is_ready(pod), is_being_deleted(pod)
    always = bool(spec_of(service).publishNotReadyAddresses)
    return Endpoint(
        addresses=[ip],
        conditions=EndpointConditions(
            ready=always or (serving and not terminating),
            serving=serving,
            terminating=terminating,
        ),
        hostname=hostname(service, pod),
        nodeName=node(pod),
        targetRef=target(pod),
    )


def selector_words(service: Service) -> Iterable[str]:
    """By what a Service is found when a pod changes: one of its labels, with the namespace."""
    if not is_selecting(service):
        return ()
    first = min((spec_of(service).selector or {}).items())
    return (selector_word(key_of(service), *first),)


def selector_word(key: Key, label: str, value: str) -> str:
    return f"{key.namespace}/{label}={value}"
