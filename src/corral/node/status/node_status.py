"""The Node of this agent, its status and its Lease, and the heartbeat that renews them.

A node whose Lease expires counts as lost: for Kubernetes' node lifecycle controller, and for
KubeVirt by its annotation ``kubevirt.io/heartbeat``.
"""

import asyncio
import os
import platform
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Namespace, Node

from corral import __version__
from corral.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.node_addresses import WIREGUARD_KEY, WIREGUARD_PORT
from corral.api.kinds.core.node_pressure import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE, TAINTS
from corral.api.kinds.storage.common import SHARED_CONDITION
from corral.api.kinds.vmi.launcher import NODE_LAUNCHER
from corral.api.object import Document, Key
from corral.api.patch.merge import merge_patch
from corral.api.time import rfc3339, rfc3339_micro
from corral.client.client import Client
from corral.client.server_clock import ServerClock
from corral.failures import describe
from corral.node.checkpoint_usage import CheckpointUsage
from corral.node.fencing.lease import NodeLease
from corral.node.health import Health, NodeCondition
from corral.reconcile.events import Clock
from corral.reconcile.objects import version_of

ACCELERATOR = "corral.dev/accelerator"
REASON = "corral.dev/accelerator-reason"
"""Annotations of the Node: its accelerator, and why no faster one is used."""
MISSING = "corral.dev/missing"
"""Annotation of a Node that cannot start machines: what has to be installed first."""
LIMITS = "corral.dev/limits"
LIMITS_REASON = "corral.dev/limits-reason"
"""Annotations of the Node: how resource limits are enforced, and why not in a better way."""
NETWORK = "corral.dev/network"
NETWORK_REASON = "corral.dev/network-reason"
"""Annotations of the Node: the network of its machines, and what is wrong with it."""
CHECKPOINTS = "corral.dev/checkpoints"
"""Annotation of a Node that has checkpoints: how many, and what they occupy, for people."""
OVERCOMMIT = "corral.dev/overcommit"
"""Annotation of a Node that promises more memory than machines may have: how much, in percent."""
RETIRED = "corral.dev/retired"
"""Annotation of a Node that stays only for the machines that it still runs."""
CLOCK_CONDITION = "ClockSynchronized"
"""Condition of a joined Node: whether its host's clock agrees with that of the API server."""
RUNTIME = "corral://"
"""Begins the containerRuntimeVersion of Nodes that run machines."""
RENEW_SECONDS = 10.0
STATUS_SECONDS = 240.0
"""Time after which an unchanged Node is written again.

A kubelet does so every five minutes (nodeStatusReportFrequency).  KubeVirt's virt-controller takes
a node whose ``kubevirt.io/heartbeat`` is older than that for lost, so this is a minute less.
"""

_REQUEST_SECONDS = 10.0
_RETURN_SECONDS = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a node; ``overcommit_percent`` of its memory is promised to machines."""

    cpu: int
    memory_bytes: int
    storage_bytes: int
    pods: int = 1000
    overcommit_percent: int = 100

    def allocatable(self, held: CheckpointUsage = CheckpointUsage()) -> "Capacity":  # noqa: B008
        """Return the allocatable part: a twentieth of memory and disk is left to the host.

        What checkpoints occupy is promised to nobody: forks request memory as any other machine,
        which they may all use for pages of their own.
        """
        memory = self.memory_bytes * 19 // 20 - held.memory_bytes
        return replace(
            self,
            memory_bytes=max(0, memory) * self.overcommit_percent // 100,
            storage_bytes=max(0, self.storage_bytes * 19 // 20 - held.disk_bytes),
        )

    def document(self) -> Document:
        return {
            "cpu": str(self.cpu),
            "memory": f"{self.memory_bytes // 1024}Ki",
            "ephemeral-storage": f"{self.storage_bytes // 1024}Ki",
            "pods": str(self.pods),
        }


def measure(directory: Path) -> Capacity:
    """Return this host's capacity: the CPUs of our affinity, memory, the disk of a directory."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Capacity(
        cpu=len(os.sched_getaffinity(0)),
        memory_bytes=pages,
        storage_bytes=shutil.disk_usage(directory).total,
    )


def host_address() -> str:
    """Return the source address of this host's default route; the loopback's without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def no_pressure() -> Mapping[str, bool]:
    return dict.fromkeys(TAINTS, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The options of a node's registration.

    address: its InternalIP; kubelet_port: where its own API listens, 0 if nowhere but in this
    process; labels, taints: what its Node is created with, which users may change later.
    """

    address: str = ""
    kubelet_port: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Document] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The properties of a node, from which its Node object is written."""

    name: str
    address: str
    capacity: Capacity
    version: str = __version__
    registration: Registration = field(default_factory=Registration)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    facts: Callable[[], Mapping[str, Any]] = dict
    retired: bool = False
    """True if it accepts no new machines, and ends with its last one."""
    limits: Callable[[], Mapping[str, str]] = dict
    network: Callable[[], Mapping[str, str]] = dict
    storage: Callable[[], Mapping[str, str]] = dict
    checkpoints: Callable[[], CheckpointUsage] = CheckpointUsage
    images: Callable[[], Sequence[Document]] = list
    pressures: Callable[[], Mapping[str, bool]] = no_pressure
    shared_labels: Callable[[], Mapping[str, str | None]] = dict
    shared: Callable[[], NodeCondition | None] = lambda: None
    fencing: Callable[[], NodeCondition | None] = lambda: None
    clock: Callable[[], NodeCondition | None] = lambda: None

    def node(self, now: datetime) -> Document:
        """Return the Node as a merge patch, without its status."""
        return {
            "metadata": {
                "name": self.name,
                "labels": {
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": _architecture(),
                    "kubevirt.io/schedulable": "true",
                    **self.labels,
                    **self.shared_labels(),
                },
                "annotations": {"kubevirt.io/heartbeat": rfc3339(now), **self._annotations()},
            }
        }

    def _annotations(self) -> dict[str, str | None]:
        facts, network = self.facts(), self.network()
        annotations: dict[str, str | None] = {MISSING: facts.get("missing") or None}
        annotations.update(self.storage())
        held, percent = self.checkpoints(), self.capacity.overcommit_percent
        annotations[CHECKPOINTS] = str(held) if held.number else None
        annotations[OVERCOMMIT] = str(percent) if percent != 100 else None
        if "accelerator" in facts:
            name = f"{facts['hypervisor']} {facts.get('version', '')}".strip()
            accelerator = facts["accelerator"]
            accelerator = name if accelerator == "none" else f"{name}, {accelerator}"
            annotations |= {ACCELERATOR: accelerator, REASON: facts["reason"]}
            annotations[NODE_LAUNCHER] = facts.get("launcher") or None
        if limits := self.limits():
            annotations |= {LIMITS: limits["limits"], LIMITS_REASON: limits["reason"]}
        if "network" in network:
            annotations |= {NETWORK: network["network"], NETWORK_REASON: network["reason"]}
            # None removes what an earlier start with another backend has written.
            annotations[WIREGUARD_KEY] = network.get("wireguard")
            annotations[WIREGUARD_PORT] = network.get("wireguard-port")
        return annotations

    def _own_conditions(self) -> Mapping[str, NodeCondition | None]:
        return {
            node_lease.SELF_FENCING: self.fencing(),
            SHARED_CONDITION: self.shared(),
            CLOCK_CONDITION: self.clock(),
        }

    def status(self, now: datetime, old: list[Document]) -> Document:
        """Return the Node's status; ``old``: its previous conditions."""
        port = self.registration.kubelet_port
        return {
            **({"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}} if port else {}),
            "capacity": self.capacity.document(),
            "allocatable": self.capacity.allocatable(self.checkpoints()).document(),
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": _node_info(self.version),
            "images": list(self.images()),
            "conditions": _conditions(now, old, self.pressures(), self._own_conditions()),
        }


def clock_condition(clock: ServerClock) -> NodeCondition:
    """Return the condition ClockSynchronized of a Node, by its API server's clock."""
    if clock.difference:
        words = f"runs on a host whose clock is {clock.difference} that of the API server: set it"
        return NodeCondition(active=False, reason="ClockDiffers", message=words)
    words = "runs on a host whose clock agrees with that of the API server"
    return NodeCondition(active=True, reason="ClockAgrees", message=words)


_PRESSURES = {
    MEMORY_PRESSURE: (
        ("KubeletHasSufficientMemory", "has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "has insufficient memory available"),
    ),
    DISK_PRESSURE: (
        ("KubeletHasNoDiskPressure", "has no disk pressure"),
        ("KubeletHasDiskPressure", "has disk pressure"),
    ),
    PID_PRESSURE: (
        ("KubeletHasSufficientPID", "has sufficient PID available"),
        ("KubeletHasInsufficientPID", "has insufficient PID available"),
    ),
}
"""Reason and message of each pressure, absent and present, as a kubelet writes them."""


def _conditions(
    now: datetime,
    old: list[Document],
    pressures: Mapping[str, bool],
    own: Mapping[str, NodeCondition | None],
) -> list[Document]:
    since = {one["type"]: one.get("lastTransitionTime") for one in old if one.get("type")}
    statuses = {one["type"]: one.get("status") for one in old if one.get("type")}
    observed = [
        (name, "True" if present else "False", *_PRESSURES[name][present])
        for name, present in pressures.items()
    ]
    observed += [
        (name, "True" if each.active else "False", each.reason, each.message)
        for name, each in own.items()
        if each is not None
    ]
    reported = [
        {
            "type": name,
            "status": status,
            "reason": reason,
            "message": f"corral {words}",
            "lastHeartbeatTime": rfc3339(now),
            "lastTransitionTime": (statuses.get(name) == status and since.get(name))
            or rfc3339(now),
        }
        for name, status, reason, words in (
            *observed,
            ("Ready", "True", "KubeletReady", "is posting ready status"),
        )
    ]
    ours = {one["type"] for one in reported} | own.keys()
    others = [one for one in old if one.get("type") not in ours]  # NetworkUnavailable, of a CNI
    return [*others, *reported]


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _node_info(version: str) -> Document:
    return {
        "machineID": _read("/etc/machine-id"),
        "systemUUID": "",
        "bootID": _read("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "containerRuntimeVersion": f"{RUNTIME}{version}",
        "kubeletVersion": f"v{version}",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


async def _nothing() -> None: ...


async def _no_change() -> bool:
    return False


class Heartbeat:
    """Registers a node, and renews its heartbeat until cancelled.

    ``lease`` notes renewals.  While it is not valid, ``before_return`` is awaited before the node
    reports that it is ready; it raises ApiError.  ``after_renewal`` is awaited after each renewal,
    and returns whether it has changed the node's status.
    """

    def __init__(
        self,
        client: Client,
        host: Host,
        clock: Clock,
        *,
        lease: NodeLease | None = None,
        before_return: Callable[[], Awaitable[None]] = _nothing,
        after_renewal: Callable[[], Awaitable[bool]] = _no_change,
    ) -> None:
        self._client = client
        self._host = host
        self._clock = clock
        self._lease = lease
        self._before_return = before_return
        self._after_renewal = after_renewal
        self._failed = False
        self._is_last = False
        self._last_written = asyncio.Event()
        self._due = asyncio.Event()
        self.is_registered = asyncio.Event()
        self._clock_health = Health("the clock of this host", self.register_again)
        self._ranges: Sequence[str] = ()
        self._written = float("-inf")
        self._node = Node()
        """The Node as it was last read or written."""

    def keep_ranges(self, ranges: Sequence[str]) -> None:
        """Keep the pod CIDRs for a Node that is created again: its machines use them."""
        self._ranges = ranges

    def register_again(self) -> None:
        """Write the Node again at once: its status or annotations have changed."""
        self._due.set()

    async def run(self) -> None:
        """Renew until cancelled; retry a failed beat at the next one."""
        registered = False
        while True:
            is_last = self._is_last
            try:
                if self._lease is not None and not self._lease.is_valid:
                    registered = False
                    async with asyncio.timeout(_RETURN_SECONDS):
                        await self._before_return()
                async with asyncio.timeout(_REQUEST_SECONDS):
                    if not registered:
                        await self._register()
                        registered = True
                    elif asyncio.get_running_loop().time() - self._written >= STATUS_SECONDS:
                        await self._write_again()
                    await self._renew()
                self._check_clock()
                if await self._after_renewal():
                    self.register_again()
                self._failed = False
                if is_last:
                    self._last_written.set()
            except (ApiError, TimeoutError) as error:
                registered, self._failed = False, True
                log.warning("heartbeat failed", node=self._host.name, error=describe(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS if registered else 1.0):
                    await self._due.wait()
                    registered = False
            self._due.clear()

    def _check_clock(self) -> None:
        """Log that this host's clock is off, or right again, and have the Node say so.

        The responses to what was just written have the API server's time of day.
        """
        condition = self._host.clock()
        problem = condition.message if condition is not None and not condition.active else ""
        if bool(problem) != bool(self._clock_health.problem):  # the words change by the minute
            self._clock_health.report(problem)

    async def write_last(self) -> bool:
        """Write the Node once more; return whether no older status of it can be written later.

        After a failure a request that nobody waits for any more may still be on its way.
        """
        self._is_last = True
        self.register_again()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._last_written.wait()
        return self._last_written.is_set() and not self._failed

    async def _register(self) -> None:
        """Write the Node as what others have made of it, or create it."""
        try:
            self._node = await self._client.get(Node, self._host.name)
        except NotFound:
            document = self._anew(self._host.node(self._clock()))
            self._node = await self._client.create(Node, document)
        await self._write()
        self.is_registered.set()

    async def _write_again(self) -> None:
        """Write the Node without a read before, unless others have changed it meanwhile.

        A patch replaces all conditions, those of others too.
        """
        try:
            await self._write(version_of(self._node))
        except Conflict:
            await self._register()

    async def _write(self, version: str = "") -> None:
        """Write metadata and status in one request, as a kubelet does (PatchNodeStatus).

        version: of the Node that may be written, by default any.  Raises Conflict.
        """
        now = self._clock()
        document = self._host.node(now)
        document["status"] = self._host.status(now, _conditions_of(self._node))
        if version:
            document["metadata"]["resourceVersion"] = version
        key = Key("", self._host.name)
        self._node = await self._client.patch(Node, key, document, subresource="status")
        self._written = asyncio.get_running_loop().time()

    def _anew(self, document: Document) -> Document:
        """Return the Node to create where there is none."""
        document = merge_patch({}, document)
        registration = self._host.registration
        created = {
            "metadata": {"labels": dict(registration.labels)},
            "spec": {"taints": list(registration.taints)} if registration.taints else {},
        }
        document = merge_patch(created, document)
        if self._host.retired:
            document = merge_patch(document, retirement(retired=True))
        if self._ranges:
            ranges = {"podCIDR": self._ranges[0], "podCIDRs": list(self._ranges)}
            document = merge_patch(document, {"spec": ranges})
        return document

    async def _renew(self) -> None:
        key = Key(node_lease.NAMESPACE, self._host.name)
        sent = self._lease.now() if self._lease is not None else 0.0
        renewed = {"renewTime": rfc3339_micro(self._clock())}
        try:
            await self._client.patch(Lease, key, {"spec": renewed})
        except NotFound:
            await self._make_lease(renewed)
        if self._lease is not None:
            self._lease.renewed(sent)

    async def _make_lease(self, renewed: Document) -> None:
        lease = {
            "metadata": {"name": self._host.name, "namespace": node_lease.NAMESPACE},
            "spec": {
                "holderIdentity": self._host.name,
                "leaseDurationSeconds": int(node_lease.SECONDS),
                **renewed,
            },
        }
        try:
            await self._client.create(Lease, lease)
        except NotFound:  # the namespace
            with suppress(AlreadyExists):
                await self._client.create(Namespace, {"metadata": {"name": node_lease.NAMESPACE}})
            await self._client.create(Lease, lease)


def retirement(*, retired: bool) -> Document:
    """Return the patch that retires a node (no new machines), or reverts that."""
    return {
        "metadata": {"annotations": {RETIRED: "true" if retired else None}},
        "spec": {"unschedulable": True if retired else None},
    }


def _conditions_of(node: Node) -> list[Document]:
    conditions = (node.status and node.status.conditions) or ()
    return [msgspec.to_builtins(each) for each in conditions]
