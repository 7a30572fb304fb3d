"""Decides which claims wait, in which order, and when each expires.  Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from corral.api.kinds.corral.claim import CLAIM_LABEL, VirtualMachineClaim
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool
from corral.api.kinds.vmi.user_data import USER_DATA, USER_DATA_SECRET
from corral.api.time import parse_duration, parse_rfc3339
from corral.reconcile.objects import is_being_deleted

Claim = VirtualMachineClaim

TTL: Final = "TTL"
SHUTDOWN_TIME: Final = "ShutdownTime"
PENDING_TIMEOUT: Final = "PendingTimeout"
"""Reasons of the condition Expired."""


class Expiry(NamedTuple):
    """The moment at which a claim expires, and the reason."""

    moment: datetime
    reason: str


def is_pending(claim: Claim) -> bool:
    """Report whether a claim waits for a machine."""
    return claim.status.vmi is None and not claim.is_expired and not is_being_deleted(claim)


def in_order(claims: Iterable[Claim]) -> list[Claim]:
    """Return claims in the order of their arrival, in which they are bound."""
    return sorted(claims, key=lambda claim: (arrival(claim), claim.metadata.name))


def arrival(claim: Claim) -> int:
    """Return the place of a claim in the order of all.

    It is the resourceVersion with which the claim came, since creation times have whole seconds;
    ``status.arrival`` keeps it when the claim changes.
    """
    if claim.status.arrival is not None:
        return claim.status.arrival
    return int(claim.metadata.resource_version or 0)


def expiry(claim: Claim) -> Expiry | None:
    """Return when a claim expires; None if it never does."""
    return min(_expiries(claim), default=None)


def is_overdue(claim: Claim, now: datetime) -> bool:
    """Report whether the moment at which a claim expires has come."""
    return (when := expiry(claim)) is not None and when.moment <= now


def _expiries(claim: Claim) -> Iterator[Expiry]:
    spec, status = claim.spec, claim.status
    if spec.shutdown_time is not None:
        yield Expiry(parse_rfc3339(spec.shutdown_time), SHUTDOWN_TIME)
    if status.bound_at is not None:
        if spec.ttl is not None:
            yield Expiry(_after(status.bound_at, spec.ttl), TTL)
    elif spec.pending_timeout is not None and claim.metadata.creation_timestamp is not None:
        moment = _after(claim.metadata.creation_timestamp, spec.pending_timeout)
        yield Expiry(moment, PENDING_TIMEOUT)


def _after(moment: str, duration: str) -> datetime:
    return parse_rfc3339(moment) + timedelta(seconds=parse_duration(duration))


def machine_labels(claim: Claim, pool: VirtualMachineWarmPool) -> Mapping[str, str]:
    """Return the labels of the machine of a claim.

    They are not those of a set's template: the set would count the machine among its own.
    """
    template = pool.spec.template
    own = template.metadata.labels if template is not None else {}
    return {**own, CLAIM_LABEL: claim.metadata.name}


def machine_annotations(claim: Claim) -> Mapping[str, str]:
    """Return the annotations of the machine of a claim: its user data."""
    data = claim.spec.user_data
    if data is None:
        return {}
    if data.secret_ref is not None:
        return {USER_DATA_SECRET: data.secret_ref.name}
    return {USER_DATA: data.inline}
