"""Lines of ``corral status`` about nodes and their machines.  No I/O."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_addresses import internal_ips, kubelet_port
from corral.api.kinds.core.node_pressure import pressures
from corral.api.kinds.storage.common import SHARED_CONDITION
from corral.api.kinds.vmi.launcher import is_outdated
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.quantity import bytes_of
from corral.cli.output import field, size
from corral.node.status.node_status import (
    ACCELERATOR,
    CHECKPOINTS,
    CLOCK_CONDITION,
    LIMITS,
    LIMITS_REASON,
    MISSING,
    NETWORK,
    NETWORK_REASON,
    OVERCOMMIT,
    REASON,
    RETIRED,
)

NOT_RUNNING: Final = 3
"""Exit code if no manager or agent runs, as ``systemctl status`` has it for an inactive unit."""
_CONDITIONS: Final = (SHARED_CONDITION, CLOCK_CONDITION)
"""Conditions of Nodes that say what is wrong where they are False."""
_WAITING: Final = frozenset({"", "Pending", "Scheduling"})
"""Phases of VMIs that no node runs yet."""


def node_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a line for each node, then their distinct accelerators, limits and networks.

    Nodes that serve an API of their own are on other hosts: their lines say where.
    """
    for node in nodes:
        where = next(iter(internal_ips(node)), "") if len(nodes) > 1 and kubelet_port(node) else ""
        yield node_line(node) + (f"; at {where}" if where else "")
    for title, name, reason in (
        ("runs by", ACCELERATOR, REASON),
        ("limits", LIMITS, LIMITS_REASON),
    ):
        for each in _distinct({_name(node): _with_reason(node, name, reason) for node in nodes}):
            yield field(title, each)
    for network in _distinct({_name(node): _annotation(node, NETWORK) for node in nodes}):
        yield field("network", network)
    for held in _distinct({_name(node): _annotation(node, CHECKPOINTS) for node in nodes}):
        yield field("checkpoints", held)
    for promised in _distinct({_name(node): _promise(node) for node in nodes}):
        yield field("memory", promised)


def _promise(node: Node) -> str:
    """Return how much memory a node promises, where forks or its options make that a question."""
    percent = _annotation(node, OVERCOMMIT)
    if not percent and not _annotation(node, CHECKPOINTS):
        return ""
    allocatable = (node.status and node.status.allocatable) or {}
    promised = size(bytes_of(str(allocatable.get("memory", "0"))))
    if not percent:
        return (
            f"{promised} for machines; each fork counts as if it shared none, which --overcommit "
            "changes"
        )
    return (
        f"{promised} for machines, {percent} % of what there is (--overcommit): machines are "
        "evicted if they use it all, as when forks write to what they share"
    )


def _distinct(values: Mapping[str, str]) -> list[str]:
    """Return the distinct values of nodes; with the nodes' names where nodes differ."""
    owners: dict[str, list[str]] = {}
    for node, value in values.items():
        if value:
            owners.setdefault(value, []).append(node)
    if len(owners) < 2:
        return list(owners)
    return [f"{value} ({', '.join(nodes)})" for value, nodes in owners.items()]


def machine_lines(
    nodes: Sequence[Node], machines: Sequence[VirtualMachineInstance]
) -> Iterator[str]:
    """Yield the number of machines by phase, why some wait, and how many are outdated."""
    by_name = {_name(node): node for node in nodes}
    yield field("machines", phases_of(machines, by_name))
    for each in waiting(machines):
        yield field("waiting", each)
    if outdated := sum(is_outdated(each, by_name.get(each.status.node_name)) for each in machines):
        runs = "machine runs" if outdated == 1 else "machines run"
        text = f"{outdated} {runs} in an outdated QEMU: corral upgrade machines --dry-run says why"
        yield field("outdated", text)


def node_line(node: Node) -> str:
    """Return a node's line: name, readiness and capacity.

    A retired node has no capacity: the host's is that of the others.
    """
    if _annotation(node, RETIRED):
        state = "ready" if _is_ready(node) else "NOT READY"
        return field("node", f"{_name(node)}: {state}, takes no machines, goes with its last one")
    capacity = (node.status and node.status.capacity) or {}
    memory = size(bytes_of(str(capacity.get("memory", "0"))))
    short = "".join(f", {each}" for each in pressures(node))
    closed = node.spec is not None and node.spec.unschedulable
    state = (
        ("ready" if _is_ready(node) else "NOT READY")
        + (", takes no machines" if closed else "")
        + short
    )
    return field("node", f"{_name(node)}: {state}; {capacity.get('cpu', '?')} cpus, {memory}")


def node_problems(nodes: Sequence[Node], faults: Iterable[str]) -> list[str]:
    """Return what keeps machines from starting on nodes, and further faults."""
    not_ready = (_name(node) for node in nodes if not _is_ready(node))
    wrong = [f"node {name} is not ready: kubectl describe node {name}" for name in not_ready]
    wrong += [
        f"node {_name(node)} has {each}, and starts no machine until that has been over for the "
        "--eviction-pressure-transition-period (5m0s unless corral up named another): "
        f"kubectl describe node {_name(node)}"
        for node in nodes
        for each in pressures(node)
    ]
    wrong += [
        f"node {_name(node)} starts no machine: {missing}"
        for node in nodes
        if (missing := _annotation(node, MISSING))
    ]
    wrong += [
        f"node {_name(node)} {each.message.removeprefix('corral ')}"
        for node in nodes
        for each in (node.status and node.status.conditions) or ()
        if each.type in _CONDITIONS and each.status == "False" and each.message
    ]
    if not nodes:
        wrong.append("no node: machines have nowhere to run; the manager's log may say why")
    return [*wrong, *faults]


def phases_of(machines: Iterable[VirtualMachineInstance], nodes: Container[str]) -> str:
    """Return the number of VMIs by phase; apart from VMIs of missing nodes, whose status is old."""
    phases = Counter(
        "of nodes that are gone"
        if each.status.node_name and each.status.node_name not in nodes
        else each.status.phase or "Pending"
        for each in machines
    )
    return ", ".join(f"{count} {phase}" for phase, count in phases.most_common()) or "none"


def waiting(machines: Iterable[VirtualMachineInstance]) -> list[str]:
    """Return the reasons why VMIs do not start, each with the number of VMIs."""
    titles = {"PodScheduled": "no node", "Synchronized": "no start"}
    reasons = Counter(
        f"{titles[condition.type]}: {condition.message}"
        for each in machines
        if each.status.phase in _WAITING
        for condition in each.status.conditions
        if condition.type in titles and condition.status == "False"
    )
    return [
        f"{count} {'has' if count == 1 else 'have'} {reason}"
        for reason, count in reasons.most_common()
    ]


def network_problems(nodes: Sequence[Node]) -> list[str]:
    """Return the distinct problems of nodes' networks."""
    reasons = _distinct({_name(node): _annotation(node, NETWORK_REASON) for node in nodes})
    return [f"network: {reason}" for reason in reasons]


def _with_reason(node: Node, name: str, reason: str) -> str:
    """Return two annotations of a node as ``VALUE: REASON``; empty without the first."""
    value = _annotation(node, name)
    return f"{value}: {_annotation(node, reason)}" if value else ""


def _annotation(node: Node, name: str) -> str:
    annotations: dict[str, str] = (node.metadata and node.metadata.annotations) or {}
    return annotations.get(name, "")


def _name(node: Node) -> str:
    return (node.metadata and node.metadata.name) or ""


def _is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
