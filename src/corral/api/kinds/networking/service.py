"""Service: a stable address for a set of pods."""

from lightkube.models.core_v1 import Service

from corral.api.kind import Column, at
from corral.api.kinds.columns import NONE, age, text
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.networking.service_defaults import default, default_create
from corral.api.kinds.networking.service_spec import EXTERNAL_NAME, LOAD_BALANCER
from corral.api.kinds.networking.service_update import keep
from corral.api.kinds.networking.service_validation import validate
from corral.api.object import Document


def _address(document: Document) -> str:
    return at(document, "spec", "clusterIP") or NONE


def _external_address(document: Document) -> str:
    spec = document.get("spec") or {}
    if spec.get("type") == EXTERNAL_NAME:
        return spec.get("externalName") or ""
    addresses: list[str] = []
    if spec.get("type") == LOAD_BALANCER:
        ingress = at(document, "status", "loadBalancer", "ingress") or ()
        addresses = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
    addresses += spec.get("externalIPs") or ()
    return ",".join(addresses) or ("<pending>" if spec.get("type") == LOAD_BALANCER else NONE)


def _ports(document: Document) -> str:
    shown = []
    for port in at(document, "spec", "ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node_port}/{port.get('protocol', '')}")
    return ",".join(shown) or NONE


def _selector(document: Document) -> str:
    selector = at(document, "spec", "selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE


SERVICE = kubernetes_kind(
    group="",
    plural="services",
    short=("svc",),
    categories=("all",),
    view=Service,
    columns=(
        Column(name="Type", cell=text("spec", "type"), description="its type"),
        Column(name="Cluster-IP", cell=_address, description="its address in the cluster"),
        Column(name="External-IP", cell=_external_address, description="its external addresses"),
        Column(name="Port(s)", cell=_ports, description="port, port on nodes, and protocol"),
        age(),
        Column(name="Selector", cell=_selector, priority=1, description="labels of its pods"),
    ),
    selectable={
        "spec.clusterIP": text("spec", "clusterIP"),
        "spec.type": text("spec", "type"),
    },
    keep=keep,
    default=default,
    default_create=default_create,
    validate=validate,
)
