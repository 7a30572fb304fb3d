"""Validation of Services, with Kubernetes' messages.

``service_addresses`` validates addresses and their families.  Ranges and conflicts of addresses and
node ports are checked by their allocators.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from corral.api.addresses import (
    address_faults,
    network_faults,
    parse_address,
    port_faults,
    port_or_name_faults,
    special_faults,
)
from corral.api.errors import Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import (
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    required,
    unsupported,
)
from corral.api.kinds.networking.service_addresses import address_causes, change_causes
from corral.api.kinds.networking.service_spec import (
    CLUSTER_IP,
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NODE_PORT,
    TYPES,
    is_external_name,
    is_headless,
    is_reachable_from_outside,
    needs_health_check,
)
from corral.api.metadata import check_labels
from corral.api.names import label_faults, label_key_faults, subdomain_faults
from corral.api.object import Document

PROTOCOLS = ("TCP", "UDP", "SCTP")
LONGEST_AFFINITY_SECONDS = 86400

_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"
_POLICIES = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a Service that was defaulted."""
    spec = document["spec"]
    causes: list[Cause] = []
    if old is not None:
        causes += limited(
            chain(change_causes(spec, old["spec"]), _check_class_change(spec, old["spec"]))
        )
    causes += limited(chain.from_iterable(rule(spec) for rule in _RULES))
    causes += limited(_check_status(document))
    return Verdict(causes)


# ---------------------------------------------------------------------- type


def _check_type(spec: Document) -> Iterator[Cause]:
    kind = spec["type"]
    if kind not in TYPES:
        yield unsupported("spec.type", kind, TYPES)
    if not spec.get("ports") and not is_headless(spec) and kind != EXTERNAL_NAME:
        yield required("spec.ports")
    if is_headless(spec) and kind in (LOAD_BALANCER, NODE_PORT):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if is_external_name(spec):
        yield from _check_external_name(spec)


def _check_external_name(spec: Document) -> Iterator[Cause]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    name = str(spec.get("externalName") or "").removesuffix(".")
    if name:
        yield from each_invalid("spec.externalName", name, subdomain_faults(name))
    else:
        yield required("spec.externalName")


# --------------------------------------------------------------------- ports


def _check_ports(spec: Document) -> Iterator[Cause]:
    ports = spec.get("ports") or []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        yield from port_causes(path, port, named=len(ports) > 1)
        if name := port.get("name"):
            if name in names:
                yield duplicate(f"{path}.name", name)
            names.add(name)
        yield from each_invalid(
            f"{path}.targetPort", port["targetPort"], port_or_name_faults(port["targetPort"])
        )
        if spec["type"] == CLUSTER_IP and port.get("nodePort"):
            yield forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
    yield from _check_unique_ports(ports)


def port_causes(path: str, port: Document, *, named: bool) -> Iterator[Cause]:
    """Check a port of a Service or of Endpoints; ``named``: it needs a name."""
    name = port.get("name")
    if name:
        yield from each_invalid(f"{path}.name", name, label_faults(name))
    elif named:
        yield required(f"{path}.name")
    yield from each_invalid(f"{path}.port", port["port"], port_faults(port["port"]))
    if port["protocol"] not in PROTOCOLS:
        yield unsupported(f"{path}.protocol", port["protocol"], PROTOCOLS)
    if application := port.get("appProtocol"):
        yield from each_invalid(f"{path}.appProtocol", application, label_key_faults(application))


def _check_unique_ports(ports: list[Document]) -> Iterator[Cause]:
    """Check that ports and node ports are unique by protocol."""
    node_ports: set[tuple[str, int]] = set()
    numbers: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path, protocol = f"spec.ports[{index}]", port["protocol"]
        if node_port := port.get("nodePort"):
            if (protocol, node_port) in node_ports:
                yield duplicate(f"{path}.nodePort", node_port)
            node_ports.add((protocol, node_port))
        if (protocol, port["port"]) in numbers:
            yield duplicate(path, _internal_port(protocol, port["port"]))
        numbers.add((protocol, port["port"]))


def _internal_port(protocol: str, number: int) -> dict[str, Any]:
    """Return a port as kube-apiserver prints it in messages: in its internal form."""
    unset = {"AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0}
    return {"Name": "", "Protocol": protocol} | unset


# ------------------------------------------------------------ selection, affinity


def _check_selector(spec: Document) -> Iterator[Cause]:
    yield from check_labels(spec.get("selector") or {}, "spec.selector")


def _check_affinity(spec: Document) -> Iterator[Cause]:
    affinity, path = spec["sessionAffinity"], "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    if affinity not in ("ClientIP", "None"):
        yield unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    seconds = at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
    if affinity == "ClientIP" and not 0 < seconds <= LONGEST_AFFINITY_SECONDS:
        fault = f"must be greater than 0 and less than {LONGEST_AFFINITY_SECONDS}"
        yield invalid(path, seconds, fault)


# ------------------------------------------------------------------- outside


def _check_external_ips(spec: Document) -> Iterator[Cause]:
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        faults = address_faults(address) or special_faults(address)
        yield from each_invalid(path, address, faults)


def _check_load_balancer(spec: Document) -> Iterator[Cause]:
    """Check the fields that only Services of type LoadBalancer may have."""
    is_load_balancer = spec["type"] == LOAD_BALANCER
    ranges = spec.get("loadBalancerSourceRanges") or []
    if ranges and not is_load_balancer:
        yield forbidden("spec.LoadBalancerSourceRanges", _LOAD_BALANCER_ONLY)
    for index, block in enumerate(map(str.strip, ranges)):
        path = f"spec.LoadBalancerSourceRanges[{index}]"
        yield from each_invalid(path, block, network_faults(block))
    if "allocateLoadBalancerNodePorts" in spec and not is_load_balancer:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY)
    if load_balancer_class := spec.get("loadBalancerClass"):
        if is_load_balancer:
            yield from each_invalid(
                "spec.loadBalancerClass", load_balancer_class, label_key_faults(load_balancer_class)
            )
        else:
            yield forbidden("spec.loadBalancerClass", _LOAD_BALANCER_ONLY)


def _check_class_change(spec: Document, old: Document) -> Iterator[Cause]:
    if spec["type"] == old["type"] == LOAD_BALANCER:
        load_balancer_class = spec.get("loadBalancerClass")
        if load_balancer_class != old.get("loadBalancerClass"):
            yield invalid("spec.loadBalancerClass", load_balancer_class, "may not change once set")


def _check_traffic_policies(spec: Document) -> Iterator[Cause]:
    external, internal = spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy")
    if external and not is_reachable_from_outside(spec):
        fault = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", external, fault)
    elif external and external not in _POLICIES:
        yield unsupported("spec.externalTrafficPolicy", external, _POLICIES)
    if internal and internal not in _POLICIES:
        yield unsupported("spec.internalTrafficPolicy", internal, _POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution and distribution not in _DISTRIBUTIONS:
        yield unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def _check_health_check_port(spec: Document) -> Iterator[Cause]:
    port, path = spec.get("healthCheckNodePort"), "spec.healthCheckNodePort"
    if port and not needs_health_check(spec):
        fault = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        yield invalid(path, port, fault)


_RULES: tuple[Callable[[Document], "Iterator[Cause] | list[Cause]"], ...] = (
    _check_type,
    _check_ports,
    _check_selector,
    _check_affinity,
    address_causes,
    _check_external_ips,
    _check_load_balancer,
    _check_traffic_policies,
    _check_health_check_port,
)


# -------------------------------------------------------------------- status


def _check_status(document: Document) -> Iterator[Cause]:
    """Check the addresses of the load balancer in the status."""
    for index, ingress in enumerate(at(document, "status", "loadBalancer", "ingress") or ()):
        path = f"status.loadBalancer.ingress[{index}]"
        if document["spec"]["type"] != LOAD_BALANCER:
            yield forbidden(path, 'may only be used when `spec.type` is "LoadBalancer"')
        yield from _check_ingress(path, ingress)


def _check_ingress(path: str, ingress: Document) -> Iterator[Cause]:
    address, host, mode = ingress.get("ip"), ingress.get("hostname"), ingress.get("ipMode")
    if address:
        yield from each_invalid(f"{path}.ip", address, address_faults(address))
    elif mode:
        yield forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
    if mode and mode not in ("VIP", "Proxy"):
        yield unsupported(f"{path}.ipMode", mode, ("VIP", "Proxy"))
    if host:
        yield from each_invalid(f"{path}.hostname", host, subdomain_faults(host))
        if parse_address(host) is not None:
            yield invalid(f"{path}.hostname", host, "must be a DNS name, not an IP address")
