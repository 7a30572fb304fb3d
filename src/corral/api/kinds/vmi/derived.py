"""Values derived from a VMI's spec: processors, memory, names of host and pod.  No I/O.

The mutating webhook writes most of them into a new VMI, but templates and VMIs of earlier versions
lack them.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from corral.api.kinds.vmi.domain import Cpu, Domain, Resources
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.names import SUFFIX_LENGTH, SUFFIX_LETTERS
from corral.api.object import Quantity
from corral.api.quantity import ZERO, Amount, amount, parse

COMPUTE = "compute"
"""The container of a launcher pod that stands for the machine."""
CONSOLE_LOG = "guest-console-log"
"""The container of a launcher pod whose log is that of the serial console."""
UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
"""The readiness gate of a launcher pod."""
FAILS_AT_START = "kubevirt.io/func-test-virt-launcher-fail-fast"
"""Annotation, with any value, of a VMI that shall fail before its guest runs; KubeVirt's tests of
crash loops set it."""
DEFAULT_GRACE_SECONDS = 30
LONGEST_HOST_NAME = 63
MOST_PROCESSORS = 255
"""The most CPUs that a PC can address without an IOMMU; QEMU does not start with more."""
NODE_LABEL = "kubevirt.io/nodeName"
"""The label of a VMI by which its node finds it, and may change it: the node."""
MIGRATION_UID = "kubevirt.io/migrationJobUID"
"""The label of the target pod of a migration: the migration's uid."""
INSTANCE_ID = "vmi.kubevirt.io/id"
"""The label by which a Service selects the pod of one VMI: see ``instance_id``."""
_LONGEST_LABEL = 63
_LONGEST_POD_NAME = 63
_DEFAULT_MEMORY = parse("128Mi")


class Processors(NamedTuple):
    """The CPU topology of a VMI; each count is at least 1."""

    sockets: int
    cores: int
    threads: int

    @property
    def total(self) -> int:
        """The number of virtual CPUs."""
        return self.sockets * self.cores * self.threads


def processors(domain: Domain) -> Processors:
    """Return the topology in ``cpu``, else as many sockets as the CPU limit or request needs."""
    cpu, resources = domain.cpu or Cpu(), domain.resources or Resources()
    if not (cpu.sockets or cpu.cores or cpu.threads):
        return Processors(sockets(resources.limits, resources.requests), 1, 1)
    return Processors(cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1)


def sockets(limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    """Return the sockets of a VMI without a topology: its CPU limit, else its request, rounded up.

    The result is capped at ``MOST_PROCESSORS``; whether a node has as much is for the scheduler.
    """
    cpu = limits.get("cpu", requests.get("cpu"))
    return 1 if cpu is None else max(1, min(amount(cpu).rounded_up(), MOST_PROCESSORS))


def machine_type(domain: Domain) -> str:
    """Return the type of the emulated machine, which may be an alias: ``q35`` by default."""
    return (domain.machine.type if domain.machine is not None else "") or "q35"


def guest_memory(domain: Domain) -> Amount:
    """Return the guest's memory: ``memory.guest``, else the memory request, else the limit."""
    memory, resources = domain.memory, domain.resources or Resources()
    if memory is not None and memory.guest is not None:
        return amount(memory.guest)
    pages = memory.hugepages if memory is not None else None
    page_size = pages.page_size if pages else None
    size = default_guest_memory(resources.requests, resources.limits, page_size)
    return _DEFAULT_MEMORY if size is None else amount(size)


def default_guest_memory(
    requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], page_size: Quantity | None
) -> Quantity | None:
    """Return the memory of a guest without ``memory.guest``: request, limit or one huge page."""
    candidates = (requests.get("memory"), limits.get("memory"), page_size)
    return next((one for one in candidates if amount(one) > ZERO), None)


def host_name(vmi: VirtualMachineInstance) -> str:
    """Return the guest's host name: as specified, else the first label of the VMI's name."""
    name = vmi.spec.hostname or vmi.metadata.name.partition(".")[0]
    return name[:LONGEST_HOST_NAME].rstrip("-")


def instance_id(name: str) -> str:
    """Return a VMI's name as a label value: a long one is cut and ends in its digest."""
    if len(name) <= _LONGEST_LABEL:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{name[: _LONGEST_LABEL - 9]}-{digest}"


def grace_seconds(spec: Spec) -> int:
    """Return the seconds that the guest has to shut down."""
    seconds = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if seconds is None else max(0, seconds)


def pod_name(vmi: VirtualMachineInstance) -> str:
    """Return ``virt-launcher-<name>-xxxxx``, as KubeVirt's generateName does.

    The suffix is derived from the VMI's uid: a create that is retried because its response was lost
    hits AlreadyExists instead of making a second pod.  By it the node also
    distinguishes the launcher pod from other pods that name the VMI as their owner.
    """
    return _launcher_name(vmi, vmi.metadata.uid)


def target_pod_name(vmi: VirtualMachineInstance, migration_uid: str) -> str:
    """Return the name of the pod to which a migration moves a VMI: as ``pod_name``, by its uid."""
    return _launcher_name(vmi, migration_uid)


def current_pod_name(vmi: VirtualMachineInstance) -> str:
    """Return the name of the pod that runs a VMI: that in which it started, or the last target.

    It follows from the status, which no user can write: any pod may name the VMI as its owner.
    """
    state, node = vmi.status.migration_state, vmi.status.node_name
    if state is None or not node:
        return pod_name(vmi)
    if node == state.target_node and state.target_pod:
        return state.target_pod
    return state.source_pod if node == state.source_node and state.source_pod else pod_name(vmi)


def _launcher_name(vmi: VirtualMachineInstance, uid: str) -> str:
    prefix = f"virt-launcher-{vmi.metadata.name}-"
    return prefix[: _LONGEST_POD_NAME - SUFFIX_LENGTH] + _suffix(uid)


@lru_cache(maxsize=4096)
def _suffix(uid: str) -> str:
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8])
    suffix = ""
    for _ in range(SUFFIX_LENGTH):
        number, letter = divmod(number, len(SUFFIX_LETTERS))
        suffix += SUFFIX_LETTERS[letter]
    return suffix
