"""Addresses of a pod, from its status."""

from lightkube.models.core_v1 import Pod

from corral.api.addresses import Address, parse_address
from corral.api.kinds.vmi.vmi import FINAL_PHASES


def pod_addresses(pod: Pod | None) -> list[Address]:
    """Return the addresses of a pod that has not ended, as far as they can be read."""
    status = pod.status if pod is not None else None
    if status is None or status.phase in FINAL_PHASES:
        return []
    parsed = (parse_address(each.ip or "") for each in status.podIPs or ())
    return [each for each in parsed if each is not None]
