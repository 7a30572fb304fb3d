"""What VirtualMachines are told: KubeVirt's subresources start, stop, restart and others.

They are served under the group subresources.kubevirt.io.  What cannot be, by what the run strategy
and the machine's phase tell, is refused in KubeVirt's words (virt-api's lifecycle.go).  Each
request reads the newest versions, decides and stages without an ``await`` between, so nobody comes
in between: KubeVirt, which cannot, tests what it read when it writes.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from corral.api import grace_period
from corral.api.encoding import encode
from corral.api.errors import (
    BadRequest,
    Conflict,
    InternalError,
    MethodNotAllowed,
)
from corral.api.kind import Kind, at
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.virtualmachine import (
    ALWAYS,
    HALTED,
    ONCE,
    PAUSED,
    RERUN_ON_FAILURE,
    START,
    STOP,
)
from corral.api.kinds.vmi.vmi import FINAL_PHASES
from corral.api.object import Document
from corral.api.request import Response, User
from corral.server.admission.instancetypes import Instancetypes
from corral.server.node_proxy import forwarding
from corral.server.registry.rest import Rest
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, json_response, storage
from corral.store import Record

if TYPE_CHECKING:
    from corral.server.node_proxy.forwarding import Nodes

SERVER: Final = User(
    name="system:serviceaccount:kubevirt:kubevirt-apiserver",
    groups=("system:authenticated",),
    agent="virt-api",
)
"""In whose name machines are changed: their users may not change them themselves."""

_NOT_RUNNING = "VM is not running"


class Options(msgspec.Struct, rename="camel"):
    """What KubeVirt takes in the body: StartOptions, StopOptions, RestartOptions and others.

    paused: start it without letting it run.
    grace_period: seconds that it has to shut down, when it is stopped.
    grace_period_seconds: seconds that it has to shut down, when it is restarted.
    dry_run: All to try it only.
    claim_name: the claim that a dump of the memory is to go to.
    """

    paused: bool = False
    grace_period: int | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None
    claim_name: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A VirtualMachine, its machine if there is one, and what is wanted of it."""

    vm: Document
    vmi: Document | None
    options: Options

    @property
    def name(self) -> str:
        name: str = self.vm["metadata"]["name"]
        return name

    @property
    def strategy(self) -> str:
        """The run strategy, whichever way it is said."""
        running = at(self.vm, "spec", "running")
        if running is not None:
            return ALWAYS if running else HALTED
        return at(self.vm, "spec", "runStrategy") or HALTED

    @property
    def phase(self) -> str:
        """The machine's phase, empty without a machine."""
        return at(self.vmi, "status", "phase") or ""

    @property
    def runs(self) -> bool:
        """Whether there is a machine that has not ended."""
        return self.vmi is not None and self.phase not in FINAL_PHASES

    def conflict(self, why: str) -> Conflict:
        return kubevirt_options.conflict(VIRTUAL_MACHINE, self.name, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What follows from a request.

    spec: what changes of the VirtualMachine's specification.
    requests: what the VirtualMachine is asked to do, in this order.
    grace_seconds: how long the machine may take to shut down from now on.
    """

    spec: Document = field(default_factory=dict)
    requests: tuple[Document, ...] = ()
    grace_seconds: int | None = None


Decide = Callable[[Told], Change]
"""Says what follows, or refuses it.  Pure."""


def find(kind: Kind, subresource: str) -> str | None:
    """The verb of a subresource, where VirtualMachines have it."""
    if kind.resource != VIRTUAL_MACHINE.resource:
        return None
    name, *port = subresource.split("/")
    if name == PORT_FORWARD:
        return "get" if len(port) in (1, 2) else None
    if subresource == EXPAND:
        return "get"
    return "update" if subresource in ACTS else None


def verbs() -> Mapping[str, str]:
    """Every subresource of VirtualMachines with its verb, as discovery lists them."""
    return {PORT_FORWARD: "get", EXPAND: "get", **dict.fromkeys(ACTS, "update")}


async def answer(rest: Rest, nodes: "Nodes", call: Call) -> Response:
    """Do what a VirtualMachine is told.  Raises NotFound, BadRequest, Conflict and others."""
    if call.verb != find(call.kind, call.subresource):
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VM"'
        )
    options = kubevirt_options.options(call, Options) if call.verb == "update" else Options()
    found = rest.store.latest(storage(call.kind), call.key)
    if found is None:
        raise kubevirt_options.not_found(call.kind, call.name)
    if call.subresource == EXPAND:
        return json_response(encode(Instancetypes(rest.store).expanded(found.document())))
    machine = rest.store.latest(storage(VIRTUAL_MACHINE_INSTANCE), call.key)
    told = Told(found.document(), machine.document() if machine else None, options)
    if call.subresource not in ACTS:
        _require_own_machine(told)
        return await forwarding.answer(
            rest.store, nodes, replace(call, kind=VIRTUAL_MACHINE_INSTANCE)
        )
    change = ACTS[call.subresource](told)
    asked = replace(call, query=kubevirt_options.query(call, options.dry_run))
    staged = await _staged(rest, asked, change, found, machine)
    rest.require_newest(call.kind, call.key, found)
    rest.require_newest(VIRTUAL_MACHINE_INSTANCE, call.key, machine)
    if "All" not in (options.dry_run or ()):
        writes = [rest.store.write(storage(kind), call.key, new) for kind, new in staged]
        await asyncio.gather(*writes)
    return Response(status=202)


def _require_own_machine(told: Told) -> None:
    owners = at(told.vmi, "metadata", "ownerReferences") or ()
    if told.vmi is None or all(each["uid"] != told.vm["metadata"]["uid"] for each in owners):
        raise told.conflict("VMI is not started")


# --------------------------------------------------------------------- storing


async def _staged(
    rest: Rest, call: Call, change: Change, vm: Record, vmi: Record | None
) -> list[tuple[Kind, Document]]:
    """The objects as they are to be stored, in this order, with all that belongs to an update.

    After a cut between the two a machine may have longer to stop than was said, but is asked to.
    """
    ours = replace(call, user=SERVER, group="kubevirt.io", subresource="")
    staged: list[tuple[Kind, Document]] = []
    if change.spec:
        wanted = vm.document()
        wanted["spec"] |= change.spec
        if (new := await rest.evaluate_update(ours, vm, wanted)) is not None:
            staged.append((VIRTUAL_MACHINE, new))
    if change.requests:
        wanted = vm.document()
        wanted["status"] = _asked(wanted.get("status") or {}, change.requests)
        if (
            new := await rest.evaluate_update(replace(ours, subresource="status"), vm, wanted)
        ) is not None:
            staged.append((VIRTUAL_MACHINE, new))
    if change.grace_seconds is not None and vmi is not None:
        wanted = vmi.document()
        wanted["spec"]["terminationGracePeriodSeconds"] = change.grace_seconds
        of_machine = replace(ours, kind=VIRTUAL_MACHINE_INSTANCE)
        if (new := await rest.evaluate_update(of_machine, vmi, wanted)) is not None:
            staged.append((VIRTUAL_MACHINE_INSTANCE, new))
    return staged


def _asked(status: Document, requests: tuple[Document, ...]) -> Document:
    """The status with what is asked; whoever asks gets a start without delay, too.

    Only a stop alone takes the place of what was asked before.
    """
    stops = len(requests) == 1 and requests[0]["action"] == STOP
    if status.get("stateChangeRequests") and not stops:
        why = "unable to complete request: stop/start already underway"
        raise InternalError(f"Internal error occurred: {why}")
    kept = {name: value for name, value in status.items() if name != "startFailure"}
    return kept | {"stateChangeRequests": list(requests)}


# -------------------------------------------------------------------- deciding


def _start(told: Told) -> Change:
    if told.runs and told.phase not in ("", "Unknown"):
        raise told.conflict("VM is already running")
    paused = told.options.paused
    start: Document = {"action": START, **({"data": {PAUSED: "true"}} if paused else {})}
    if told.strategy in (ALWAYS, ONCE):
        raise told.conflict(f"{told.strategy} does not support manual start requests")
    if told.strategy == HALTED:
        return Change(requests=(start,)) if paused else Change(spec=_running(told, runs=True))
    if told.vmi is None or told.runs:
        return Change(requests=(start,))
    if told.strategy == RERUN_ON_FAILURE and told.phase == "Failed":
        raise told.conflict(f"{RERUN_ON_FAILURE} does not support starting VM from failed state")
    return Change(requests=(_stop_of(told), start))


def _stop(told: Told) -> Change:
    seconds = told.options.grace_period
    if seconds is not None and seconds < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    if fault := grace_period.fault(seconds):
        raise BadRequest(f"gracePeriod {fault}")
    if told.strategy in (ALWAYS, ONCE):
        return Change(spec=_running(told, runs=False), grace_seconds=seconds if told.runs else None)
    if not told.runs:
        raise told.conflict(_NOT_RUNNING)
    if told.strategy == HALTED:
        known = at(told.vmi, "spec", "terminationGracePeriodSeconds")
        if seconds is None or (known is not None and seconds >= known):
            why = "only supports manual stop requests with a shorter graceperiod"
            raise told.conflict(f"{HALTED} {why}")
    return Change(requests=(_stop_of(told),), grace_seconds=seconds)


def _restart(told: Told) -> Change:
    seconds = told.options.grace_period_seconds
    if seconds is not None and seconds > 0:
        raise BadRequest("For force restart, only gracePeriod=0 is supported for now")
    if seconds is not None and seconds < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    if told.strategy in (HALTED, ONCE):
        # The misspelling is KubeVirt's.
        why = f"RunStategy {told.strategy} does not support manual restart requests"
        raise told.conflict(why)
    if told.vmi is None:
        raise told.conflict(f"{_NOT_RUNNING}: {HALTED}")
    requests = (_stop_of(told), {"action": START})
    # One second is the shortest in which a machine restarts safely, KubeVirt finds.
    return Change(requests=requests, grace_seconds=None if seconds is None or not told.runs else 1)


def _migrate(told: Told) -> Change:
    if told.vmi is None:
        raise kubevirt_options.not_found(VIRTUAL_MACHINE_INSTANCE, told.name)
    if told.phase != "Running":
        raise told.conflict(_NOT_RUNNING)
    raise BadRequest("machines that run do not migrate in this version")


def _stop_of(told: Told) -> Document:
    """The request to stop just the machine that there is."""
    assert told.vmi is not None
    return {"action": STOP, "uid": told.vmi["metadata"]["uid"]}


def _running(told: Told, *, runs: bool) -> Document:
    """The change of the run strategy, in the way in which it is said."""
    if at(told.vm, "spec", "runStrategy") is not None:
        return {"runStrategy": ALWAYS if runs else HALTED}
    return {"running": runs}


def _dump(told: Told) -> Change:
    """Raises BadRequest.  virtctl has made a claim by then, which only its user may delete."""
    why = "memory dumps are not supported by this version"
    claim = told.options.claim_name
    if claim:
        namespace = told.vm["metadata"]["namespace"]
        why += (
            f"; the claim {claim} is left as it is: if it was made for the dump, delete it with "
            f"kubectl delete pvc {claim} -n {namespace}"
        )
    raise BadRequest(why)


PORT_FORWARD: Final = "portforward"
EXPAND: Final = "expand-spec"
"""The VirtualMachine as it would be without its instance type and preference."""
ACTS: Mapping[str, Decide] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "migrate": _migrate,
    "memorydump": _dump,
    "removememorydump": _dump,
}
"""What VirtualMachines can be told, by the path below them."""
