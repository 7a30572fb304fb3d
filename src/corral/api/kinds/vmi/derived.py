"""What follows from a machine's object: the one answer that pod, node and status give.  Pure.

The mutating webhook writes most of it into the object when that is made, but templates, and objects
of before, say less; whoever asks here need not know.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from corral.api.kinds.vmi.domain import Cpu, Domain, Resources
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.names import SUFFIX_LENGTH, SUFFIX_LETTERS
from corral.api.object import Quantity
from corral.api.quantity import NOTHING, Amount, amount, parse

COMPUTE = "compute"
"""The container of a machine's pod that stands for the machine itself."""
CONSOLE_LOG = "guest-console-log"
"""The container that stands for the log of the machine's serial console."""
UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
"""The readiness gate of a machine's pod."""
FAILS_AT_START = "kubevirt.io/func-test-virt-launcher-fail-fast"
"""Annotation of a machine that is to fail before its guest runs, whatever it says: KubeVirt's tests
of crash loops, and people who try what becomes of such machines, set it."""
DEFAULT_GRACE_SECONDS = 30
LONGEST_HOST_NAME = 63
MOST_PROCESSORS = 255
"""Virtual processors that a PC can number without an IOMMU; QEMU does not start with more."""
INSTANCE_ID = "vmi.kubevirt.io/id"
"""The label by which a Service finds the pod of one machine: see ``instance_id``."""
_LONGEST_LABEL = 63
_LONGEST_POD_NAME = 63
_DEFAULT_MEMORY = parse("128Mi")


class Processors(NamedTuple):
    """How a machine's processors are laid out; each count is at least 1."""

    sockets: int
    cores: int
    threads: int

    @property
    def total(self) -> int:
        """Virtual processors in all."""
        return self.sockets * self.cores * self.threads


def processors(domain: Domain) -> Processors:
    """As ``cpu`` lays them out; else as many sockets as the cpu limit, or request, needs."""
    cpu, resources = domain.cpu or Cpu(), domain.resources or Resources()
    if not (cpu.sockets or cpu.cores or cpu.threads):
        return Processors(sockets(resources.limits, resources.requests), 1, 1)
    return Processors(cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1)


def sockets(limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    """Sockets of a machine whose layout nobody gave: its cpu limit, or request, rounded up.

    They are as many as there can be where more is asked for: whether a node has so much is for
    the scheduler to say.
    """
    asked = limits.get("cpu", requests.get("cpu"))
    return 1 if asked is None else max(1, min(amount(asked).rounded_up(), MOST_PROCESSORS))


def guest_memory(domain: Domain) -> Amount:
    """What the guest sees: ``memory.guest``, else what the machine requests, else its limit."""
    memory, resources = domain.memory, domain.resources or Resources()
    if memory is not None and memory.guest is not None:
        return amount(memory.guest)
    pages = memory.hugepages if memory is not None else None
    asked = memory_asked(resources.requests, resources.limits, pages.page_size if pages else None)
    return _DEFAULT_MEMORY if asked is None else amount(asked)


def memory_asked(
    requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], page_size: Quantity | None
) -> Quantity | None:
    """The guest's memory where nobody gave it: the request, the limit or one huge page."""
    candidates = (requests.get("memory"), limits.get("memory"), page_size)
    return next((one for one in candidates if amount(one) > NOTHING), None)


def host_name(vmi: VirtualMachineInstance) -> str:
    """The guest's name: as specified, else the first part of the object's name."""
    name = vmi.spec.hostname or vmi.metadata.name.partition(".")[0]
    return name[:LONGEST_HOST_NAME].rstrip("-")


def instance_id(name: str) -> str:
    """A machine's name as a label may hold it: a long one ends in a digest of itself."""
    if len(name) <= _LONGEST_LABEL:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{name[: _LONGEST_LABEL - 9]}-{digest}"


def grace_seconds(spec: Spec) -> int:
    """How long the guest may take to shut down once it is told to."""
    seconds = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if seconds is None else max(0, seconds)


def pod_name(vmi: VirtualMachineInstance) -> str:
    """``virt-launcher-<name>-xxxxx``, as the server would make it of KubeVirt's generateName.

    The suffix follows from the machine's uid: a creation that is repeated because its answer was
    lost finds the pod that is there, and never makes a second one of the same machine.  By it the
    node knows the machine's own pod from others that name the machine as their owner.
    """
    suffix = _suffix(vmi.metadata.uid)
    return f"virt-launcher-{vmi.metadata.name}-"[: _LONGEST_POD_NAME - SUFFIX_LENGTH] + suffix


@lru_cache(maxsize=4096)
def _suffix(uid: str) -> str:
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8])
    suffix = ""
    for _ in range(SUFFIX_LENGTH):
        number, letter = divmod(number, len(SUFFIX_LETTERS))
        suffix += SUFFIX_LETTERS[letter]
    return suffix
