"""Whether a machine can serve, as its pod tells: judged alike by whoever writes it.  Pure.

The controller of machines keeps the condition Ready; a node that writes a new phase writes what
follows from it along, for both are one piece of news.
"""

from lightkube.models.core_v1 import Pod, PodCondition

from corral.api.object import Condition
from corral.reconcile.objects import is_going


def ready(pod: Pod | None, phase: str) -> Condition:
    """Whether the machine can serve, as far as its pod tells; evaluated in KubeVirt's order."""
    if pod is None:
        text = "virt-launcher pod has not yet been scheduled"
        return denied("Ready", "PodNotExists", text)
    if is_going(pod):
        return denied("Ready", "PodTerminating", "virt-launcher pod is terminating")
    if phase != "Running":
        return denied("Ready", "GuestNotRunning", "Guest VM is not reported as running")
    told = pod_condition(pod, "Ready")
    if told is None:
        text = "virt-launcher pod is missing the Ready condition"
        return denied("Ready", "PodConditionMissing", text)
    return copied(told)


def denied(name: str, reason: str, message: str) -> Condition:
    """A condition that does not hold."""
    return Condition(type=name, status="False", reason=reason, message=message)


def copied(condition: PodCondition) -> Condition:
    """A pod's condition as one of the machine's."""
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason or "",
        message=condition.message or "",
    )


def pod_condition(pod: Pod | None, name: str) -> PodCondition | None:
    """The pod's condition of a type, if it has one."""
    if pod is None or pod.status is None:
        return None
    return next((each for each in pod.status.conditions or () if each.type == name), None)
