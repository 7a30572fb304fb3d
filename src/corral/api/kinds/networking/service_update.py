"""What an update of a service means where it does not say all (the real server's service strategy).

Clients send services without what the server gave them, and change types without clearing what the
old type had.  What they must have meant is done for them; contradictions are left to the rules.
"""

from typing import Any

from corral.api.kinds.networking.service_defaults import default
from corral.api.kinds.networking.service_spec import (
    LOAD_BALANCER,
    has_node_ports,
    is_external_name,
    is_reachable_from_outside,
    needs_health_check,
)
from corral.api.object import Document


def keep(document: Document, stored: Document, _user: str) -> None:
    """Give a changed service back what it was given, and take what its new type has no use for."""
    default(document)
    new, old = document["spec"], stored["spec"]
    _give_back(new, old)
    _pair_addresses(new, old)
    _take_unused(new, old)
    if new["type"] != old["type"] == LOAD_BALANCER:
        document["status"] = {**(document.get("status") or {}), "loadBalancer": {}}


def _give_back(new: Document, old: Document) -> None:
    if not is_external_name(old) and not is_external_name(new) and "clusterIP" in old:
        new.setdefault("clusterIP", old["clusterIP"])
        if new["clusterIP"] == old["clusterIP"]:
            new.setdefault("clusterIPs", list(old["clusterIPs"]))
    if has_node_ports(old) and has_node_ports(new):
        _give_back_node_ports(new.get("ports") or [], old.get("ports") or [])
    if needs_health_check(old) and needs_health_check(new) and "healthCheckNodePort" in old:
        new.setdefault("healthCheckNodePort", old["healthCheckNodePort"])


def _give_back_node_ports(new: list[Document], old: list[Document]) -> None:
    """Ports are known again by their names, whatever else of them has changed."""
    used = _node_ports(new) & _node_ports(old)
    known = {port.get("name", ""): port.get("nodePort") for port in old}
    for port in new:
        before = known.get(port.get("name", ""))
        if "nodePort" not in port and before and before not in used:
            port["nodePort"] = before
            used.add(before)


def _pair_addresses(new: Document, old: Document) -> None:
    """Make ``clusterIPs`` follow ``clusterIP`` for clients that know of the latter alone."""
    if _same(new, old, "clusterIP") or not _same(new, old, "clusterIPs"):
        return
    if "clusterIP" in new:
        new["clusterIPs"] = [new["clusterIP"]]
    else:
        new.pop("clusterIPs", None)


def _take_unused(new: Document, old: Document) -> None:
    """Clear what the old type had and the new one has not, where the client left it as it was."""
    if is_external_name(new) and not is_external_name(old):
        if _same(new, old, "clusterIP") and _same(new, old, "clusterIPs"):
            new.pop("clusterIP", None)
            new.pop("clusterIPs", None)
        _take(new, old, "ipFamilies", "ipFamilyPolicy")
    if has_node_ports(old) and not has_node_ports(new):
        _take_node_ports(new.get("ports") or [], old.get("ports") or [])
    if is_reachable_from_outside(old) and not is_reachable_from_outside(new):
        _take(new, old, "externalTrafficPolicy")
    if needs_health_check(old) and not needs_health_check(new):
        _take(new, old, "healthCheckNodePort")
    if old["type"] == LOAD_BALANCER != new["type"]:
        _take(new, old, "allocateLoadBalancerNodePorts", "loadBalancerClass")


def _take_node_ports(new: list[Document], old: list[Document]) -> None:
    if _node_ports(new) <= _node_ports(old):
        for port in new:
            port.pop("nodePort", None)


def _take(new: Document, old: Document, *fields: str) -> None:
    for field in fields:
        if _same(new, old, field):
            new.pop(field, None)


def _same(new: Document, old: Document, field: str) -> bool:
    return bool(new.get(field) == old.get(field))


def _node_ports(ports: list[Document]) -> set[Any]:
    return {port["nodePort"] for port in ports if "nodePort" in port}
