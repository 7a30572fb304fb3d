"""Parts that all nodes of one host share; the manager hands them to each agent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral.api.object import Document
from corral.client.client import Client
from corral.node.health import NodeCondition
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.images.store import ImageStore
from corral.node.limits.limits import Limits
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.attachment import Networks
from corral.node.network.guest_ports import Network
from corral.node.pressure import Pressure
from corral.node.status.node_status import Registration
from corral.node.storage import Storage
from corral.node.storage.shared_storage import SharedStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """The shared parts; None for those that this host does not have.

    listed_images: ``status.images`` of the Nodes.
    storage: the volumes of claims; storage_facts: annotations of the Node about them.
    shared: the shared directory, if the host has one.
    provisioner: the client that writes claims, unless that of the node does.
    host_disks: the directory whose files machines may have as disks.
    limits: sets resource limits of machines.
    network: connects to guests; networks: attaches machines and allocates addresses.
    network_facts: annotations of the Node about both.
    destinations: the addresses that probes may connect to.
    sampler: samples the resource usage of machines.
    pressure: watches memory, disk and PIDs of the host.
    clock_condition: whether this host's clock is that of the API server.
    registration: how the nodes register.
    targets: the machines of this host that receive guests from others.
    moves: whether machines of this host move to other hosts, and from there.
    """

    images: ImageStore
    listed_images: Callable[[], Sequence[Document]] = list
    storage: Storage | None = None
    shared: SharedStorage | None = None
    provisioner: Client | None = None
    storage_facts: Callable[[], Mapping[str, str]] = dict
    host_disks: Path | None = None
    limits: Limits | None = None
    network: Network | None = None
    networks: Networks | None = None
    network_facts: Callable[[], Mapping[str, str]] = dict
    destinations: Destinations = FOR_TENANTS
    sampler: Sampler = field(default_factory=Sampler)
    pressure: Pressure | None = None
    clock_condition: Callable[[], NodeCondition | None] = lambda: None
    registration: Registration = field(default_factory=Registration)
    targets: MigrationTargets = field(default_factory=MigrationTargets)
    moves: bool = False

    @property
    def storages(self) -> Sequence[Storage]:
        """The storages that claims of machines may lie in."""
        shared = self.shared.storage if self.shared is not None else None
        return [each for each in (self.storage, shared) if each is not None]
