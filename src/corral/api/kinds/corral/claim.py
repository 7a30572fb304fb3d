"""VirtualMachineClaim: a request for one machine of a warm pool."""

from typing import ClassVar, Final, Literal

import msgspec

from corral.api.kinds.corral.warm_pool import GROUP
from corral.api.kinds.vmi import user_data
from corral.api.object import Condition, Object, Struct, Time

CLAIM_LABEL: Final = "corral.dev/claim"
"""Label of a VMI and of its pod: the claim that it is bound to."""

BOUND, READY, EXPIRED = "Bound", "Ready", "Expired"
"""Conditions of a claim."""
AGENT_CONNECTED: Final = "AgentConnected"
"""Condition of a claim, as of its VMI: the guest agent answers, so commands can be run."""
DELETE, RETAIN = "Delete", "Retain"
WAITING, NOT_FOUND = "WaitingForSpare", "WarmPoolNotFound"
HAND_OUT_FAILED: Final = "HandOutFailed"
"""Reasons of the condition Bound while it is False and the claim has not expired."""
MACHINE_DELETED, MACHINE_ENDED = "MachineDeleted", "MachineEnded"
FAILURES: Final = frozenset({MACHINE_DELETED, MACHINE_ENDED, user_data.FAILED})
"""Reasons of the condition Ready that do not pass by themselves."""


class WarmPoolReference(Struct, kw_only=True):
    """A reference to a warm pool of the same namespace.

    name: the VirtualMachineWarmPool.
    """

    name: str


class SecretReference(Struct, kw_only=True):
    """A reference to a Secret of the same namespace.

    name: the Secret; its key is userdata.
    """

    name: str


class UserData(Struct, kw_only=True):
    """User data for the guest: exactly one of the two.

    inline: a script, which begins with #!.
    secret_ref: a Secret that holds it under the key userdata.
    """

    inline: str = ""
    secret_ref: SecretReference | None = None


class ClaimSpec(Struct, kw_only=True):
    """The requested machine, and for how long; all but ttl and shutdownTime is immutable.

    warm_pool_ref: the warm pool whose spare it shall be.
    ttl: how long the machine is kept once it is bound, such as 10m; for ever by default.
    shutdown_time: when the claim expires at the latest.
    shutdown_policy: Delete (the default) deletes an expired claim; Retain keeps it without machine.
    pending_timeout: how long the claim may wait for a spare, such as 5m; for ever by default.
    user_data: a script that the guest runs at bind time, by its guest agent and without a reboot.
    """

    warm_pool_ref: WarmPoolReference
    ttl: str | None = None
    shutdown_time: Time | None = None
    shutdown_policy: Literal["Delete", "Retain"] = "Delete"
    pending_timeout: str | None = None
    user_data: UserData | None = None


class ClaimedMachine(Struct, kw_only=True):
    """The machine that a claim is bound to.

    name: the VirtualMachineInstance.
    uid: its uid.
    pod_name: the pod that runs it, for kubectl exec and kubectl logs.
    """

    name: str
    uid: str
    pod_name: str = ""


class ClaimPort(Struct, kw_only=True):
    """A port of the machine.

    name: its name.
    port: the number.
    protocol: TCP or UDP.
    """

    port: int
    name: str = ""
    protocol: str = "TCP"


class ClaimStatus(Struct, kw_only=True):
    """Observed state of the claim.

    vmi: the machine, once there is one.
    addresses: its addresses.
    ports: the ports that its spec lists.
    ssh: a command that logs in to it.
    position: place among the claims that wait for a spare of this warm pool, from 1 to 10.
    arrival: claims are bound in the order of these numbers, the resourceVersions of new claims.
    bound_at: when it was given its machine.
    expires_at: when it expires, by ttl and shutdownTime.
    observed_generation: the generation of the spec that this status is about.
    conditions: Bound, Ready, AgentConnected and Expired.
    """

    vmi: ClaimedMachine | None = None
    addresses: list[str] = []
    ports: list[ClaimPort] = []
    ssh: str = ""
    position: int | None = None
    arrival: int | None = None
    bound_at: Time | None = None
    expires_at: Time | None = None
    observed_generation: int = 0
    conditions: list[Condition] = []


class VirtualMachineClaim(Object, kw_only=True):
    """A request for one machine of a warm pool, which is deleted with the claim.

    spec: the requested machine, and for how long.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1alpha1"
    kind: ClassVar[str] = "VirtualMachineClaim"

    spec: ClaimSpec
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)

    @property
    def is_expired(self) -> bool:
        """True if the condition Expired is True: the claim gets, or keeps, no machine."""
        return any(
            each.type == EXPIRED and each.status == "True" for each in self.status.conditions
        )
