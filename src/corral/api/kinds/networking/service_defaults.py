"""What every service has, whether its maker said so or not (k8s.io/api/core/v1 defaults)."""

from corral.api.kind import at
from corral.api.kinds.networking.service_spec import (
    CLUSTER_IP,
    LOAD_BALANCER,
    is_external_name,
    is_reachable_from_outside,
)
from corral.api.object import Document

AFFINITY_SECONDS = 10800
"""How long a client stays with who answered it first, where its service does not say."""

_MEANT = "allocateLoadBalancerNodePorts"
"""The one field whose zero value differs from its absence."""


def default(document: Document) -> None:
    """Complete a service.  Its addresses and ports on nodes are not the document's to know."""
    spec = document["spec"] = _said(document.get("spec") or {})
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
        spec.setdefault(_MEANT, True)
        for ingress in at(document, "status", "loadBalancer", "ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _said(part: Document) -> Document:
    """A part without fields that hold zero: they are as if they had not been said."""
    return {name: value for name, value in part.items() if value or name == _MEANT}


def _default_affinity(spec: Document) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        seconds = at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
        if seconds is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}


def _default_port(port: Document) -> Document:
    port = _said(port) | {"port": port["port"]}
    port.setdefault("protocol", "TCP")
    port.setdefault("targetPort", port["port"])
    return port


def default_create(document: Document) -> None:
    """No load balancer serves a new service yet; its address, if it wants one, is its first."""
    document["status"] = {"loadBalancer": {}}
    spec = document.setdefault("spec", {})
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
