"""The status of claims.  Pure: each function returns a whole status, which replaces the old one."""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from corral.api.conditions import set_condition
from corral.api.errors import ApiError
from corral.api.kinds.corral.claim import (
    AGENT_CONNECTED,
    BOUND,
    EXPIRED,
    HAND_OUT_FAILED,
    MACHINE_DELETED,
    MACHINE_ENDED,
    NOT_FOUND,
    READY,
    WAITING,
    ClaimedMachine,
    ClaimPort,
    ClaimStatus,
    VirtualMachineClaim,
)
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool
from corral.api.kinds.vmi.derived import current_pod_name
from corral.api.kinds.vmi.user_data import APPLIED, FAILED, PENDING
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition, Document
from corral.api.time import rfc3339
from corral.controllers.claim.plan import (
    PENDING_TIMEOUT,
    SHUTDOWN_TIME,
    TTL,
    Expiry,
    arrival,
    expiry,
)
from corral.reconcile.objects import is_being_deleted

Claim = VirtualMachineClaim
WarmPool = VirtualMachineWarmPool
VMI = VirtualMachineInstance

MACHINE_READY: Final = "MachineReady"
MOST_POSITIONS: Final = 10
"""Claims of a warm pool that show their position."""
WHY_EXPIRED: Final = {
    TTL: "spec.ttl has passed since it was bound",
    SHUTDOWN_TIME: "spec.shutdownTime has passed",
    PENDING_TIMEOUT: "no machine became free within spec.pendingTimeout",
}


class State(NamedTuple):
    """The status, reason and message of a condition."""

    status: str
    reason: str
    message: str


def pending(claim: Claim, place: int, pool: WarmPool, now: datetime) -> Document:
    """Return the status of a claim that waits for a spare of its warm pool.

    Claims far behind show no position: each one that is bound would change all of theirs.
    """
    name = claim.spec.warm_pool_ref.name
    why = "has no ready spare" if pool.spec.replicas else "keeps no spares (its replicas are 0)"
    position = place if place <= MOST_POSITIONS else None
    changed = msgspec.structs.replace(claim.status, position=position, arrival=arrival(claim))
    state = State("False", WAITING, f"warm pool {name} {why}: {_before(place)}")
    return _document(claim, changed, {BOUND: state}, now)


def _before(place: int) -> str:
    if place > MOST_POSITIONS:
        return f"more than {MOST_POSITIONS - 1} others go before"
    if place == 1:
        return "this claim is next"
    return f"{place - 1} others go before" if place > 2 else "1 other goes before"


def refused(claim: Claim, error: ApiError, now: datetime) -> Document:
    """Return the status of a claim that was given none of the spares that are ready."""
    text = f"a spare could not be handed out, which is tried again: {error}"
    changed = msgspec.structs.replace(claim.status, position=None, arrival=arrival(claim))
    return _document(claim, changed, {BOUND: State("False", HAND_OUT_FAILED, text)}, now)


def without_pool(claim: Claim, now: datetime) -> Document:
    """Return the status of a claim whose warm pool does not exist."""
    text = f"{_missing(claim)}: create it"
    changed = msgspec.structs.replace(claim.status, position=None, arrival=arrival(claim))
    return _document(claim, changed, {BOUND: State("False", NOT_FOUND, text)}, now)


def _missing(claim: Claim) -> str:
    pool = claim.spec.warm_pool_ref.name
    return f"there is no VirtualMachineWarmPool {pool} in this namespace"


def bound(claim: Claim, vmi: VMI, now: datetime) -> Document:
    """Return the status of a claim that is bound to a machine."""
    pool, name = claim.spec.warm_pool_ref.name, vmi.metadata.name
    status = msgspec.structs.replace(
        claim.status, position=None, bound_at=claim.status.bound_at or rfc3339(now)
    )
    text = f"bound to virtual machine instance {name} of warm pool {pool}"
    conditions = {
        BOUND: State("True", "Bound", text),
        READY: readiness(claim, vmi),
        AGENT_CONNECTED: connection(vmi),
    }
    return _document(claim, _with_machine(status, vmi), conditions, now)


def followed(claim: Claim, vmi: VMI | None, now: datetime) -> Document:
    """Return the status of a bound claim, given what has become of its machine."""
    status = claim.status if vmi is None else _with_machine(claim.status, vmi)
    conditions = {READY: readiness(claim, vmi), AGENT_CONNECTED: connection(vmi)}
    return _document(claim, status, conditions, now)


def expired(claim: Claim, why: Expiry, now: datetime) -> Document:
    """Return the status of a claim that has expired: it has no machine any more."""
    text = WHY_EXPIRED[why.reason]
    if any(each.type == BOUND and each.reason == NOT_FOUND for each in claim.status.conditions):
        text = f"{text}: {_missing(claim)}"
    conditions = {EXPIRED: State("True", why.reason, text), BOUND: State("False", why.reason, text)}
    if (vmi := claim.status.vmi) is not None:
        gone = State("False", EXPIRED, f"its machine {vmi.name} is deleted, as it has expired")
        conditions |= {BOUND: gone, READY: gone, AGENT_CONNECTED: gone}
    status = msgspec.structs.replace(
        claim.status, position=None, vmi=None, addresses=[], ports=[], ssh=""
    )
    return _document(claim, status, conditions, now)


def readiness(claim: Claim, vmi: VMI | None) -> State:
    """Return the condition Ready of a bound claim: whether its machine can be used."""
    if vmi is None or is_being_deleted(vmi):
        return State("False", MACHINE_DELETED, f"its machine was deleted: {_ANEW}")
    if vmi.is_final:
        text = f"its machine has ended ({vmi.status.phase}): {_ANEW}"
        return State("False", MACHINE_ENDED, text)
    ready = _condition(vmi, READY)
    if ready is None or ready.status != "True":
        text = ready.message if ready is not None and ready.message else "its machine is not ready"
        return State("False", "MachineNotReady", text)
    if claim.spec.user_data is not None and (why := _lacks_user_data(vmi)) is not None:
        return why
    return State("True", MACHINE_READY, "")


def connection(vmi: VMI | None) -> State:
    """Return the condition AgentConnected of a bound claim."""
    found = None if vmi is None or vmi.is_final else _condition(vmi, AGENT_CONNECTED)
    if found is not None and found.status == "True":
        return State("True", "AgentConnected", "")
    return State("False", "AgentNotConnected", "the guest agent of its machine is not connected")


def _lacks_user_data(vmi: VMI) -> State | None:
    applied = _condition(vmi, APPLIED)
    if applied is None:
        return State("False", PENDING, "the guest has not run its user data yet")
    if applied.status != "True":
        return State("False", applied.reason or FAILED, applied.message)
    return None


_ANEW: Final = "delete this claim, and create another one"


def _condition(vmi: VMI, name: str) -> Condition | None:
    return next((each for each in vmi.status.conditions if each.type == name), None)


def _with_machine(status: ClaimStatus, vmi: VMI) -> ClaimStatus:
    """Return the status with what is known of the machine now."""
    interfaces = vmi.spec.domain.devices.interfaces
    reported = (each for each in vmi.status.interfaces if each.name)  # not the guest's own bridges
    metadata = vmi.metadata
    return msgspec.structs.replace(
        status,
        vmi=ClaimedMachine(name=metadata.name, uid=metadata.uid, pod_name=current_pod_name(vmi)),
        addresses=[address for each in reported for address in each.ip_addresses],
        ports=[
            ClaimPort(name=port.name, port=port.port, protocol=port.protocol or "TCP")
            for each in interfaces
            for port in each.ports
        ],
        ssh=f"corral ssh {_login(vmi)}vmi/{metadata.name}/{metadata.namespace}",
    )


def _login(vmi: VMI) -> str:
    """Return the user whose keys the machine has, with an @; empty if the spec names none."""
    for credential in vmi.spec.access_credentials:
        key = credential.ssh_public_key
        agent = key.propagation_method.qemu_guest_agent if key is not None else None
        if agent is not None and agent.users:
            return f"{agent.users[0]}@"
    return ""


def observed(claim: Claim, now: datetime) -> Document:
    """Return the status of a claim whose spec has changed after it had expired."""
    return _document(claim, claim.status, {}, now)


def _document(
    claim: Claim, status: ClaimStatus, conditions: dict[str, State], now: datetime
) -> Document:
    """Return a status with conditions set, and the fields that follow from the spec."""
    when = expiry(msgspec.structs.replace(claim, status=status))
    changed = msgspec.structs.replace(
        status,
        expires_at=rfc3339(when.moment) if when is not None else None,
        observed_generation=claim.metadata.generation,
    )
    document: Document = msgspec.to_builtins(changed)
    for name, state in conditions.items():
        document["conditions"] = set_condition(
            document.get("conditions"), name, state.status,
            reason=state.reason, message=state.message, now=rfc3339(now),
        )  # fmt: skip
    return document


def difference(old: ClaimStatus, new: Document) -> Document:
    """Return the merge patch from one status to another; empty if they are the same."""
    before: Document = msgspec.to_builtins(old)
    return {name: new.get(name) for name in {*before, *new} if before.get(name) != new.get(name)}
