"""Defaults of Services on update (kube-apiserver's service strategy).

Clients send Services without allocated fields, and change types without clearing the fields of the
old type.  Allocated fields are restored and obsolete ones cleared; contradictions are left to
validation.
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
    """Restore allocated fields of an updated Service, and clear those of its old type."""
    default(document)
    new, old = document["spec"], stored["spec"]
    _restore_allocated(new, old)
    _sync_addresses(new, old)
    _clear_unused(new, old)
    if new["type"] != old["type"] == LOAD_BALANCER:
        document["status"] = {**(document.get("status") or {}), "loadBalancer": {}}


def _restore_allocated(new: Document, old: Document) -> None:
    if not is_external_name(old) and not is_external_name(new) and "clusterIP" in old:
        new.setdefault("clusterIP", old["clusterIP"])
        if new["clusterIP"] == old["clusterIP"]:
            new.setdefault("clusterIPs", list(old["clusterIPs"]))
    if has_node_ports(old) and has_node_ports(new):
        _restore_node_ports(new.get("ports") or [], old.get("ports") or [])
    if needs_health_check(old) and needs_health_check(new) and "healthCheckNodePort" in old:
        new.setdefault("healthCheckNodePort", old["healthCheckNodePort"])


def _restore_node_ports(new: list[Document], old: list[Document]) -> None:
    """Restore node ports; ports are matched by their names."""
    used = _node_ports(new) & _node_ports(old)
    old_ports = {port.get("name", ""): port.get("nodePort") for port in old}
    for port in new:
        node_port = old_ports.get(port.get("name", ""))
        if "nodePort" not in port and node_port and node_port not in used:
            port["nodePort"] = node_port
            used.add(node_port)


def _sync_addresses(new: Document, old: Document) -> None:
    """Update ``clusterIPs`` from ``clusterIP``, for clients that set only the latter."""
    if _is_unchanged(new, old, "clusterIP") or not _is_unchanged(new, old, "clusterIPs"):
        return
    if "clusterIP" in new:
        new["clusterIPs"] = [new["clusterIP"]]
    else:
        new.pop("clusterIPs", None)


def _clear_unused(new: Document, old: Document) -> None:
    """Clear unchanged fields that the old type has and the new one does not have."""
    if is_external_name(new) and not is_external_name(old):
        if _is_unchanged(new, old, "clusterIP") and _is_unchanged(new, old, "clusterIPs"):
            new.pop("clusterIP", None)
            new.pop("clusterIPs", None)
        _clear(new, old, "ipFamilies", "ipFamilyPolicy")
    if has_node_ports(old) and not has_node_ports(new):
        _clear_node_ports(new.get("ports") or [], old.get("ports") or [])
    if is_reachable_from_outside(old) and not is_reachable_from_outside(new):
        _clear(new, old, "externalTrafficPolicy")
    if needs_health_check(old) and not needs_health_check(new):
        _clear(new, old, "healthCheckNodePort")
    if old["type"] == LOAD_BALANCER != new["type"]:
        _clear(new, old, "allocateLoadBalancerNodePorts", "loadBalancerClass")


def _clear_node_ports(new: list[Document], old: list[Document]) -> None:
    if _node_ports(new) <= _node_ports(old):
        for port in new:
            port.pop("nodePort", None)


def _clear(new: Document, old: Document, *fields: str) -> None:
    for field in fields:
        if _is_unchanged(new, old, field):
            new.pop(field, None)


def _is_unchanged(new: Document, old: Document, field: str) -> bool:
    return bool(new.get(field) == old.get(field))


def _node_ports(ports: list[Document]) -> set[Any]:
    return {port["nodePort"] for port in ports if "nodePort" in port}
