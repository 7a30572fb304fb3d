"""CPU and memory limits of a machine: those of its pod's container ``compute``.  No I/O."""

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.quantity import ZERO, amount


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one machine; 0 means unlimited.

    cpu_nanos: CPU time in nanoseconds per second.
    memory_bytes: memory of the whole process.
    """

    cpu_nanos: int = 0
    memory_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.cpu_nanos or self.memory_bytes)

    @property
    def processors(self) -> float:
        """The CPU limit in processors; infinite without a limit."""
        return self.cpu_nanos / 1e9 if self.cpu_nanos else float("inf")


def bounds_of(pod: Pod) -> Bounds:
    """Return the limits of a pod's machine."""
    containers = pod.spec.containers if pod.spec is not None else ()
    compute = next((each for each in containers if each.name == COMPUTE), None)
    limits = (compute and compute.resources and compute.resources.limits) or {}
    cpu, memory = (amount(limits.get(name)) for name in ("cpu", "memory"))
    return Bounds(
        cpu_nanos=max(cpu, ZERO).nanos,
        memory_bytes=max(memory, ZERO).rounded_up(),
    )
