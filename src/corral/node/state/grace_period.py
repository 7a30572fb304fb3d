"""Time that a machine has left once its pod or VMI is deleted.  Pure."""

from datetime import datetime

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.derived import grace_seconds
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import parse_rfc3339


def guest_seconds(vmi: VirtualMachineInstance) -> float:
    """Return the grace period of the guest; none without ACPI, since it cannot be shut down."""
    features = vmi.spec.domain.features
    if features is not None and features.acpi is not None and features.acpi.enabled is False:
        return 0
    return grace_seconds(vmi.spec)


def seconds_left(pod: Pod, vmi: VirtualMachineInstance, now: datetime) -> float | None:
    """Return the seconds until the machine must be gone; None if neither object is deleted."""
    grace = guest_seconds(vmi)
    waits = [
        left for left in (_of_pod(pod, now), _of_instance(vmi, grace, now)) if left is not None
    ]
    return max(0.0, min(grace, *waits)) if waits else None


def _of_instance(vmi: VirtualMachineInstance, grace: float, now: datetime) -> float | None:
    if vmi.metadata.deletion_timestamp is None:
        return None
    deleted = parse_rfc3339(vmi.metadata.deletion_timestamp)
    return grace - (now - deleted).total_seconds()


def _of_pod(pod: Pod, now: datetime) -> float | None:
    """A pod's deletionTimestamp is the end of its grace period, not the beginning."""
    if pod.metadata is None or pod.metadata.deletionTimestamp is None:
        return None
    return (pod.metadata.deletionTimestamp - now).total_seconds()
