"""NetworkPolicy: allowed ingress and egress traffic of pods."""

from collections.abc import Iterator

from lightkube.models.networking_v1 import NetworkPolicy

from corral.api.addresses import network_faults, parse_network, port_faults, port_or_name_faults
from corral.api.errors import BadRequest, Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required, unsupported
from corral.api.kinds.columns import NONE, age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.kinds.networking.service_validation import PROTOCOLS
from corral.api.object import Document
from corral.api.selectors import label_selector

DIRECTIONS = ("Ingress", "Egress")


def _pod_selector(document: Document) -> str:
    try:
        return str(label_selector(at(document, "spec", "podSelector") or {})) or NONE
    except BadRequest:  # stored before selectors were validated
        return "<error>"


def default(document: Document) -> None:
    """Default the policy types: Ingress, and Egress if there are egress rules; ports are TCP."""
    spec = document.get("spec")
    if spec is None:
        return
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")


def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    """Validate a policy: selectors, ports and IP blocks of its rules."""
    return Verdict(limited(_check_spec(document.get("spec") or {})))


def _check_spec(spec: Document) -> Iterator[Cause]:
    yield from selector_causes("spec.podSelector", spec.get("podSelector") or {})
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                yield from _check_port(f"{path}.ports[{place}]", port)
            for place, peer in enumerate(rule.get(peers) or ()):
                yield from _check_peer(f"{path}.{peers}[{place}]", peer)
    types = spec.get("policyTypes") or []
    if len(types) > len(DIRECTIONS):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, name in enumerate(types):
        if name not in DIRECTIONS:
            yield unsupported(f"spec.policyTypes[{index}]", name, DIRECTIONS)


def _check_port(path: str, port: Document) -> Iterator[Cause]:
    if port["protocol"] not in PROTOCOLS:
        yield unsupported(f"{path}.protocol", port["protocol"], PROTOCOLS)
    first, last = port.get("port"), port.get("endPort")
    if first is not None:
        yield from each_invalid(f"{path}.port", first, port_or_name_faults(first))
    if last is None:
        return
    if first is None:
        yield invalid(f"{path}.endPort", last, "may not be specified when `port` is not specified")
    elif isinstance(first, str):
        yield invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
    else:
        if last < first:
            yield invalid(f"{path}.endPort", last, "must be greater than or equal to `port`")
        yield from each_invalid(f"{path}.endPort", last, port_faults(last))


def _check_peer(path: str, peer: Document) -> Iterator[Cause]:
    for field in ("podSelector", "namespaceSelector"):
        if field in peer:
            yield from selector_causes(f"{path}.{field}", peer[field])
    if "ipBlock" in peer:
        yield from _check_ip_block(f"{path}.ipBlock", peer["ipBlock"])
        if len(peer) > 1:
            yield forbidden(path, "may not specify both ipBlock and another peer")
    if not peer:
        yield required(path, "must specify a peer")


def _check_ip_block(path: str, block: Document) -> Iterator[Cause]:
    block_network = parse_network(block["cidr"])
    if not block["cidr"]:
        yield required(f"{path}.cidr")
    elif block_network is None:
        yield from each_invalid(f"{path}.cidr", block["cidr"], network_faults(block["cidr"]))
    if block_network is None:
        return
    for index, text in enumerate(block.get("except") or ()):
        excluded = parse_network(text)
        if excluded is None:
            yield from each_invalid(f"{path}.except[{index}]", text, network_faults(text))
        elif (
            excluded.prefixlen <= block_network.prefixlen
            or excluded.network_address not in block_network
        ):
            yield invalid(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


NETWORK_POLICY = kubernetes_kind(
    group="networking.k8s.io",
    plural="networkpolicies",
    short=("netpol",),
    view=NetworkPolicy,
    status=False,
    columns=(
        Column(name="Pod-Selector", cell=_pod_selector, description="pods that it applies to"),
        age(),
    ),
    default=default,
    validate=validate,
)
