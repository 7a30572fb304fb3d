"""Defaults of Services (k8s.io/api/core/v1)."""

from corral.api.kind import at
from corral.api.kinds.networking.service_spec import (
    CLUSTER_IP,
    LOAD_BALANCER,
    is_external_name,
    is_reachable_from_outside,
)
from corral.api.object import Document

AFFINITY_SECONDS = 10800
"""Default seconds of session affinity by client IP."""

_ALLOCATE_NODE_PORTS = "allocateLoadBalancerNodePorts"
"""The one field whose zero value differs from its absence."""


def default(document: Document) -> None:
    """Default a Service, in place.  Cluster IPs and node ports are allocated elsewhere."""
    spec = document["spec"] = _set_fields(document.get("spec") or {})
    spec.setdefault("type", CLUSTER_IP)
    spec.setdefault("sessionAffinity", "None")
    _default_affinity(spec)
    if "ports" in spec:
        spec["ports"] = [_default_port(port) for port in spec["ports"]]
    if is_reachable_from_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if not is_external_name(spec):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault(_ALLOCATE_NODE_PORTS, True)
        for ingress in at(document, "status", "loadBalancer", "ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _set_fields(part: Document) -> Document:
    """Return the fields that are set: zero values count as unset."""
    return {name: value for name, value in part.items() if value or name == _ALLOCATE_NODE_PORTS}


def _default_affinity(spec: Document) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        seconds = at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
        if seconds is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}


def _default_port(port: Document) -> Document:
    port = _set_fields(port) | {"port": port["port"]}
    port.setdefault("protocol", "TCP")
    port.setdefault("targetPort", port["port"])
    return port


def default_create(document: Document) -> None:
    """Set the status of a new Service, and ``clusterIPs`` from ``clusterIP``."""
    document["status"] = {"loadBalancer": {}}
    spec = document.setdefault("spec", {})
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
