"""What a node tells of its machines: KubeVirt's names and labels (virt-handler's domainstats).

Guests are not woken for it: what QEMU and the kernel know of them is read when somebody asks.
"""

from collections.abc import Callable, Iterable

import structlog

from corral.api.kinds.vmi import VirtualMachineInstance
from corral.metrics import START_BOUNDS, START_STAGES, Family, Stages, counter, gauge
from corral.node.hypervisor import GuestError
from corral.node.machine import Machine

Present = Callable[[], Iterable[Machine]]
Find = Callable[[str], VirtualMachineInstance | None]
"""The instance with a uid."""
Step = Callable[[str, str], None]
"""Is told each step of each machine: the instance's uid, and the step."""

_LABEL_LETTERS = str.maketrans("./-", "___")
_STAGES = {"prepared": "prepared", "spawned": "spawned", "resumed": "started", "booted": "booted"}
"""Steps of a machine at which a stage of its start ends."""
_LAST = frozenset({"booted", "ended", "erased"})

log = structlog.get_logger()


def log_step(uid: str, step: str) -> None:
    log.debug("machine", uid=uid, step=step)


class Measures:
    """The figures of one node's machines, and of how they came up."""

    def __init__(self, node: str, machines: Present, instance: Find) -> None:
        self._node = node
        self._machines = machines
        self._instance = instance
        self._stages = Stages(*START_STAGES, START_BOUNDS)

    def step(self, uid: str, step: str) -> None:
        """A machine has taken a step: it is on record as soon as it is to be brought up."""
        if step == "defined":
            self._stages.begin(uid)
        if (stage := _STAGES.get(step)) is not None:
            self._stages.end(stage, uid)
        if step in _LAST:
            self._stages.forget(uid)

    async def tell(self) -> Iterable[Family]:
        cpu = counter("kubevirt_vmi_cpu_usage_seconds_total", "Processor time of QEMU.")
        resident = gauge("kubevirt_vmi_memory_resident_bytes", "Memory that QEMU holds.")
        for machine in self._machines():
            vmi = self._instance(machine.record.uid)
            if vmi is None:
                continue
            try:
                usage = machine.guest.usage()
            except GuestError:
                continue
            if usage is not None:
                labels = self._labels(vmi)
                cpu.add(usage.cpu_nanos / 1e9, labels)
                resident.add(usage.memory_bytes, labels)
        return cpu, resident, self._stages.family()

    def _labels(self, vmi: VirtualMachineInstance) -> dict[str, str]:
        """What names an instance; its own labels are told, too."""
        own = {
            f"kubernetes_vmi_label_{name.translate(_LABEL_LETTERS)}": value
            for name, value in vmi.metadata.labels.items()
        }
        name = {"namespace": vmi.metadata.namespace, "name": vmi.metadata.name}
        return own | {"node": self._node} | name
