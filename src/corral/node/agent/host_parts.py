"""What the nodes of one host share, and their agents are given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.images.store import ImageStore
from corral.node.limits.limits import Limits
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.attachment import Networks
from corral.node.network.guest_ports import Network
from corral.node.pressure import Pressure
from corral.node.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """The parts; where one is None, or is not given, the host does without.

    storage: where the volumes of claims lie.
    host_disks: the directory whose files machines may have as disks.
    limits: what bounds machines.
    network: by which guests are reached; networks: where machines get addresses.
    network_facts: what nodes say of both.
    destinations: where probes may lead.
    sampler: what samples the usage of machines.
    pressure: what watches over what the host has left.
    """

    images: ImageStore
    storage: Storage | None = None
    host_disks: Path | None = None
    limits: Limits | None = None
    network: Network | None = None
    networks: Networks | None = None
    network_facts: Callable[[], Mapping[str, str]] = dict
    destinations: Destinations = FOR_TENANTS
    sampler: Sampler = field(default_factory=Sampler)
    pressure: Pressure | None = None
