"""Service: one address for those who answer it, whoever they are at the moment."""

from lightkube.models.core_v1 import Service

from corral.api.kind import Column, Kind, Version, at
from corral.api.kinds.columns import age, text
from corral.api.object import Document

NONE = "<none>"
AFFINITY_SECONDS = 10800
"""How long a client stays with who answered it first, where its service does not say."""

CLUSTER_IP = "ClusterIP"
NODE_PORT = "NodePort"
LOAD_BALANCER = "LoadBalancer"
EXTERNAL_NAME = "ExternalName"


def is_headless(spec: Document) -> bool:
    """Whether a service has no address of its own: its name stands for all who answer it."""
    return spec.get("clusterIP") == "None"


def is_reachable_from_outside(spec: Document) -> bool:
    """Whether traffic may come to a service from outside the cluster, and so has a policy."""
    kind = spec.get("type")
    return kind in (NODE_PORT, LOAD_BALANCER) or bool(
        kind == CLUSTER_IP and spec.get("externalIPs")
    )


def needs_health_check(spec: Document) -> bool:
    """Whether load balancers ask each node if it has an endpoint: ``healthCheckNodePort``."""
    return spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def default(document: Document) -> None:
    """What every service has, whether its maker said so or not (k8s.io/api/core/v1 defaults)."""
    spec = document.setdefault("spec", {})
    for name in [name for name, value in spec.items() if value in ("", [], {})]:
        del spec[name]  # as if it had not been said
    spec.setdefault("type", CLUSTER_IP)
    spec.setdefault("sessionAffinity", "None")
    _default_affinity(spec)
    for port in spec.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        port["targetPort"] = port.get("targetPort") or port["port"]
    if is_reachable_from_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] in (CLUSTER_IP, NODE_PORT, LOAD_BALANCER):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for ingress in at(document, "status", "loadBalancer", "ingress") or ():
        if spec["type"] == LOAD_BALANCER and ingress.get("ip"):
            ingress.setdefault("ipMode", "VIP")


def _default_affinity(spec: Document) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP" and not isinstance(
        at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds"), int
    ):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}


def default_create(document: Document) -> None:
    """No load balancer serves a new service yet."""
    document["status"] = {"loadBalancer": {}}


def _address(document: Document) -> str:
    return at(document, "spec", "clusterIP") or NONE


def _outer_address(document: Document) -> str:
    spec = document.get("spec") or {}
    if spec.get("type") == EXTERNAL_NAME:
        return spec.get("externalName") or ""
    given: list[str] = []
    if spec.get("type") == LOAD_BALANCER:
        ingress = at(document, "status", "loadBalancer", "ingress") or ()
        given = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
    given += spec.get("externalIPs") or ()
    return ",".join(given) or ("<pending>" if spec.get("type") == LOAD_BALANCER else NONE)


def _ports(document: Document) -> str:
    shown = []
    for port in at(document, "spec", "ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node_port}/{port.get('protocol', '')}")
    return ",".join(shown) or NONE


def _selector(document: Document) -> str:
    selector = at(document, "spec", "selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE


SERVICE = Kind(
    group="",
    name="Service",
    plural="services",
    singular="service",
    short=("svc",),
    categories=("all",),
    versions=(Version(name="v1"),),
    view=Service,
    native=True,
    columns=(
        Column(name="Type", cell=text("spec", "type"), description="from where it is reached"),
        Column(name="Cluster-IP", cell=_address, description="its address in the cluster"),
        Column(name="External-IP", cell=_outer_address, description="its addresses outside"),
        Column(name="Port(s)", cell=_ports, description="port, port on nodes, and protocol"),
        age(),
        Column(name="Selector", cell=_selector, priority=1, description="pods that answer it"),
    ),
    selectable={
        "spec.clusterIP": text("spec", "clusterIP"),
        "spec.type": text("spec", "type"),
    },
    default=default,
    default_create=default_create,
)
