"""Which machine goes first when a host is short, and what is said of it.  Pure.

The order and the words are a kubelet's (pkg/kubelet/eviction/helpers.go): those that take more than
they request before those that do not, then those of low priority, then those that exceed most.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lightkube.models.core_v1 import Pod

from corral.api.kinds.core import pod_resources
from corral.api.kinds.priority_class import CRITICAL_PRIORITY
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Key
from corral.api.quantity import NANO, ZERO, Amount, Form
from corral.node.pressure.thresholds import Shortage
from corral.reconcile.objects import key_of

LEAST_BYTES = 2**20
"""Whoever holds less of the disk frees nothing by its end."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod with a machine, and what that takes of what is short; ``usage`` is None if unknown."""

    pod: Pod
    usage: int | None

    @property
    def key(self) -> Key:
        return key_of(self.pod)

    @property
    def priority(self) -> int:
        return (self.pod.spec and self.pod.spec.priority) or 0

    def requested(self, resource: str) -> int:
        assert self.pod.spec is not None
        return pod_resources.requests(self.pod.spec).get(resource, ZERO).rounded_up()


def ranked(candidates: Iterable[Candidate], resource: str) -> list[Candidate]:
    """The machines that may go, the first to go first."""

    def rank(each: Candidate) -> tuple[bool, int, int]:
        if each.usage is None:  # a kubelet lets go first what it cannot measure
            return False, each.priority, -(2**63)
        over = each.usage - each.requested(resource)
        return over <= 0, each.priority, -over

    may_go = (each for each in candidates if each.priority < CRITICAL_PRIORITY)
    if resource == "ephemeral-storage":
        may_go = (each for each in may_go if each.usage is None or each.usage >= LEAST_BYTES)
    return sorted(may_go, key=rank)


def message(victim: Candidate, short: Shortage) -> str:
    """Why a pod has to go."""
    resource = short.threshold.of.resource
    told = f"The node was low on resource: {resource}. {short.told()}"
    request = victim.requested(resource)
    if victim.usage is None or victim.usage <= request:
        return told
    usage = Amount(victim.usage // 1024 * 1024 * NANO, Form.BINARY)
    asked = Amount(request * NANO, Form.BINARY)
    return (
        f"{told}Container {COMPUTE} was using {usage}, request is {asked}, "
        f"has larger consumption of {resource}. "
    )
