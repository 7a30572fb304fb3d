"""The pods of a Service: addresses, ports and readiness. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from lightkube.models.core_v1 import ObjectReference, Pod, Service, ServiceSpec
from lightkube.models.discovery_v1 import Endpoint, EndpointConditions, EndpointPort

from corral.api.object import Key
from corral.reconcile.objects import is_being_deleted, is_ready, key_of, labels_of, uid_of

FAMILIES = {"IPv4": 4, "IPv6": 6}
"""IP versions by value of ``spec.ipFamilies`` and of a slice's ``addressType``."""
HEADLESS = "None"
"""``clusterIP`` of a headless Service."""
FINISHED = frozenset({"Succeeded", "Failed"})


class Port(NamedTuple):
    """A port of a Service as resolved on its pods; ``number`` 0 stands for all ports."""

    name: str
    protocol: str
    number: int
    app_protocol: str | None = None

    def in_slice(self) -> EndpointPort:
        """Return the port for an EndpointSlice."""
        return EndpointPort(
            name=self.name,
            protocol=self.protocol,
            port=self.number,
            appProtocol=self.app_protocol,
        )


def spec_of(service: Service) -> ServiceSpec:
    return service.spec or ServiceSpec()


def is_selecting(service: Service) -> bool:
    """Report whether a Service selects pods by labels, so not an ExternalName."""
    spec = spec_of(service)
    return bool(spec.selector) and spec.type != "ExternalName"


def is_headless(service: Service) -> bool:
    return spec_of(service).clusterIP in (HEADLESS, "", None)


def families(service: Service) -> Sequence[str]:
    """Return the IP families of a Service, the primary one first."""
    return spec_of(service).ipFamilies or ["IPv4"]


def matches(service: Service, labels: Mapping[str, str]) -> bool:
    """Report whether the Service selects a pod with these labels."""
    selector = spec_of(service).selector or {}
    return all(labels.get(key) == value for key, value in selector.items())


def members(service: Service, pods: Iterable[Pod]) -> list[Pod]:
    """Return the Service's pods that have an address and have not finished, by name."""
    found = [
        pod
        for pod in pods
        if matches(service, labels_of(pod)) and not is_finished(pod) and ips(pod)
    ]
    return sorted(found, key=lambda pod: key_of(pod).name)


def is_finished(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in FINISHED


def ips(pod: Pod) -> list[str]:
    """Return the addresses of a pod.

    The host's address counts only with hostNetwork: a VMI behind user-mode networking reports its
    host's, where other ports answer.
    """
    status = pod.status
    if status is None:
        return []
    listed = [each.ip for each in status.podIPs or () if each.ip]
    addresses = listed or ([status.podIP] if status.podIP else [])
    if pod.spec is not None and pod.spec.hostNetwork:
        return addresses
    hosts = {status.hostIP, *(each.ip for each in status.hostIPs or ())}
    return [ip for ip in addresses if ip not in hosts]


def address(pod: Pod, family: str) -> str:
    """Return the pod's address of a family; empty without one."""
    return next((ip for ip in ips(pod) if (":" in ip) == (family == "IPv6")), "")


def ready_since(pod: Pod) -> datetime | None:
    """Return the last transition of the condition Ready."""
    conditions = (pod.status and pod.status.conditions) or ()
    return next((each.lastTransitionTime for each in conditions if each.type == "Ready"), None)


def hostname(service: Service, pod: Pod) -> str | None:
    """Return the pod's host name if its subdomain is the Service."""
    spec = pod.spec
    if spec is None or not spec.hostname or spec.subdomain != key_of(service).name:
        return None
    return spec.hostname


def node(pod: Pod) -> str | None:
    return (pod.spec and pod.spec.nodeName) or None


def target(pod: Pod) -> ObjectReference:
    """Return the reference to the pod."""
    key = key_of(pod)
    return ObjectReference(kind="Pod", namespace=key.namespace, name=key.name, uid=uid_of(pod))


def ports(service: Service, pod: Pod) -> tuple[Port, ...]:
    """Return the Service's ports resolved on this pod; unknown named ports are left out.

    Only a headless Service may have no ports at all.
    """
    named = _named(pod)
    found = []
    for port in spec_of(service).ports or ():
        protocol, target_port = port.protocol or "TCP", port.targetPort or port.port
        number = target_port if isinstance(target_port, int) else named.get((target_port, protocol))
        if number is not None:
            found.append(Port(port.name or "", protocol, number, port.appProtocol or None))
    return tuple(found)


def _named(pod: Pod) -> dict[tuple[str, str], int]:
    """Return the ports of a pod by name and protocol: pods and Services may have thousands."""
    named: dict[tuple[str, str], int] = {}
    for container in (pod.spec and pod.spec.containers) or ():
        for offered in container.ports or ():
            if offered.name:
                key = offered.name, offered.protocol or "TCP"
                named.setdefault(key, offered.containerPort)
    return named


def endpoint(service: Service, pod: Pod, family: str) -> Endpoint | None:
    """Return the pod as an endpoint of a slice; None without an address of the family.

    A pod that is being deleted is not ready, whatever its probe says; it may still serve.
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


def selector_keys(service: Service) -> Iterable[str]:
    """Return the index key of a Service: namespace and one label of its selector."""
    if not is_selecting(service):
        return ()
    first = min((spec_of(service).selector or {}).items())
    return (selector_key(key_of(service), *first),)


def selector_key(key: Key, label: str, value: str) -> str:
    return f"{key.namespace}/{label}={value}"
