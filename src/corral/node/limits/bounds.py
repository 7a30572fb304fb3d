"""How much a machine may take of its node: the limits of its pod's container ``compute``.  Pure."""

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.quantity import ZERO, amount


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one machine; none where it is 0.

    cpu_nanos: billionths of a processor, which is nanoseconds of its time in each second.
    memory_bytes: what all of its process may hold.
    """

    cpu_nanos: int = 0
    memory_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.cpu_nanos or self.memory_bytes)

    @property
    def processors(self) -> float:
        """How many processors it may use, infinitely many where there is no limit."""
        return self.cpu_nanos / 1e9 if self.cpu_nanos else float("inf")


def bounds_of(pod: Pod) -> Bounds:
    """What a pod allows its machine."""
    containers = pod.spec.containers if pod.spec is not None else ()
    compute = next((one for one in containers if one.name == COMPUTE), None)
    limits = (compute and compute.resources and compute.resources.limits) or {}
    cpu, memory = (amount(limits.get(name)) for name in ("cpu", "memory"))
    return Bounds(
        cpu_nanos=max(cpu, ZERO).nanos,
        memory_bytes=max(memory, ZERO).rounded_up(),
    )
