"""NetworkPolicy: whose traffic reaches which pods, and where pods may connect to."""

from lightkube.models.networking_v1 import NetworkPolicy

from corral.api.errors import BadRequest
from corral.api.kind import Column, Kind, Version, at
from corral.api.kinds.columns import age
from corral.api.object import Document
from corral.api.selectors import label_selector

NONE = "<none>"


def _pod_selector(document: Document) -> str:
    try:
        return str(label_selector(at(document, "spec", "podSelector") or {})) or NONE
    except BadRequest:  # stored before its rules were checked
        return "<error>"


def default(document: Document) -> None:
    """A policy is about what comes in; about what goes out where it has rules for that."""
    spec = document.get("spec")
    if spec is None:
        return
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")


NETWORK_POLICY = Kind(
    group="networking.k8s.io",
    name="NetworkPolicy",
    plural="networkpolicies",
    singular="networkpolicy",
    short=("netpol",),
    versions=(Version(name="v1"),),
    view=NetworkPolicy,
    status=False,
    native=True,
    columns=(
        Column(name="Pod-Selector", cell=_pod_selector, description="pods that it is about"),
        age(),
    ),
    default=default,
)
