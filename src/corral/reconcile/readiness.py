"""The Ready condition of a VMI, computed from its pod.  Pure.

Two writers share it: the VMI controller maintains the condition, and a node that writes a new phase
writes the resulting condition along, so that watchers see both in one update.
"""

from lightkube.models.core_v1 import Pod, PodCondition

from corral.api.object import Condition
from corral.reconcile.objects import is_being_deleted


def ready_condition(pod: Pod | None, phase: str) -> Condition:
    """Return the VMI's Ready condition, evaluated in KubeVirt's order."""
    if pod is None:
        text = "virt-launcher pod has not yet been scheduled"
        return false_condition("Ready", "PodNotExists", text)
    if is_being_deleted(pod):
        return false_condition("Ready", "PodTerminating", "virt-launcher pod is terminating")
    if phase != "Running":
        return false_condition("Ready", "GuestNotRunning", "Guest VM is not reported as running")
    ready_of_pod = pod_condition(pod, "Ready")
    if ready_of_pod is None:
        text = "virt-launcher pod is missing the Ready condition"
        return false_condition("Ready", "PodConditionMissing", text)
    return condition_of(ready_of_pod)


def false_condition(name: str, reason: str, message: str) -> Condition:
    """Return a condition with status False."""
    return Condition(type=name, status="False", reason=reason, message=message)


def condition_of(condition: PodCondition) -> Condition:
    """Return a pod's condition as a condition of the VMI."""
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason or "",
        message=condition.message or "",
    )


def pod_condition(pod: Pod | None, name: str) -> PodCondition | None:
    """Return the pod's condition of a type, or None."""
    if pod is None or pod.status is None:
        return None
    return next((each for each in pod.status.conditions or () if each.type == name), None)
