"""The order of evictions, and their messages.  No I/O.

Both are a kubelet's (pkg/kubelet/eviction/helpers.go): pods that exceed their requests before
others, then by priority, then by the excess.
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

MIN_BYTES = 2**20
"""A machine that uses less of the disk frees nothing by its end."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod with a machine, and its usage of the resource; None if unknown."""

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
    """Return the machines that may be evicted, in order."""

    def rank(each: Candidate) -> tuple[bool, int, int]:
        if each.usage is None:  # a kubelet evicts those without statistics first
            return False, each.priority, -(2**63)
        excess = each.usage - each.requested(resource)
        return excess <= 0, each.priority, -excess

    evictable = (each for each in candidates if each.priority < CRITICAL_PRIORITY)
    if resource == "ephemeral-storage":
        evictable = (each for each in evictable if each.usage is None or each.usage >= MIN_BYTES)
    return sorted(evictable, key=rank)


def message(victim: Candidate, short: Shortage) -> str:
    """Return the message of an eviction."""
    resource = short.threshold.of.resource
    text = f"The node was low on resource: {resource}. {short.describe()}"
    request = victim.requested(resource)
    if victim.usage is None or victim.usage <= request:
        return text
    usage = Amount(victim.usage // 1024 * 1024 * NANO, Form.BINARY)
    requested_ = Amount(request * NANO, Form.BINARY)
    return (
        f"{text}Container {COMPUTE} was using {usage}, request is {requested_}, "
        f"has larger consumption of {resource}. "
    )
