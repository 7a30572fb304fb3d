"""Subresources of VirtualMachines: start, stop, restart and others (subresources.kubevirt.io).

Requests that the run strategy or the VMI's phase rules out are refused with KubeVirt's messages
(virt-api's lifecycle.go).  Each request reads the newest versions, decides and stages its writes;
``require_newest`` fails it where another write came between, as KubeVirt's test patches do.
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
from corral.api.kinds.kubevirt.migration_kinds import MIGRATION
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
from corral.server.registry.rest import Updates
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
"""User of the writes to VMs and VMIs here: RBAC may allow clients the subresource only."""

_NOT_RUNNING = "VM is not running"


class Options(msgspec.Struct, rename="camel"):
    """Options in the body: KubeVirt's StartOptions, StopOptions, RestartOptions and others.

    paused: start the VMI paused.
    grace_period: seconds to shut down, of a stop.
    grace_period_seconds: seconds to shut down, of a restart.
    dry_run: All to validate only.
    claim_name: the claim for a memory dump.
    added_node_selector: labels of the nodes to which a VMI may migrate.
    """

    paused: bool = False
    grace_period: int | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None
    claim_name: str = ""
    added_node_selector: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a subresource: the VirtualMachine, its VMI if there is one, the options."""

    vm: Document
    vmi: Document | None
    options: Options

    @property
    def name(self) -> str:
        name: str = self.vm["metadata"]["name"]
        return name

    @property
    def strategy(self) -> str:
        """The run strategy, from ``spec.runStrategy`` or ``spec.running``."""
        running = at(self.vm, "spec", "running")
        if running is not None:
            return ALWAYS if running else HALTED
        return at(self.vm, "spec", "runStrategy") or HALTED

    @property
    def phase(self) -> str:
        """The VMI's phase, empty without a VMI."""
        return at(self.vmi, "status", "phase") or ""

    @property
    def runs(self) -> bool:
        """True if there is a VMI in no final phase."""
        return self.vmi is not None and self.phase not in FINAL_PHASES

    def conflict(self, why: str) -> Conflict:
        return kubevirt_options.conflict(VIRTUAL_MACHINE, self.name, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changes that a request makes.

    spec: changed fields of the VirtualMachine's spec.
    requests: its new ``status.stateChangeRequests``, in order.
    grace_seconds: the VMI's new terminationGracePeriodSeconds.
    """

    spec: Document = field(default_factory=dict)
    requests: tuple[Document, ...] = ()
    grace_seconds: int | None = None


Decide = Callable[[Request], Change]
"""Returns the changes of a request, or raises ApiError.  Pure."""


def find(kind: Kind, subresource: str) -> str | None:
    """Return the verb of a subresource of VirtualMachines; None where they do not have it."""
    if kind.resource != VIRTUAL_MACHINE.resource:
        return None
    name, *port = subresource.split("/")
    if name == PORT_FORWARD:
        return "get" if len(port) in (1, 2) else None
    if subresource == EXPAND:
        return "get"
    return "update" if subresource in OPERATIONS else None


def verbs() -> Mapping[str, str]:
    """Return every subresource of VirtualMachines with its verb, for discovery."""
    return {PORT_FORWARD: "get", EXPAND: "get", **dict.fromkeys(OPERATIONS, "update")}


async def answer(rest: Updates, nodes: "Nodes", call: Call) -> Response:
    """Serve a subresource of a VirtualMachine.  Raises NotFound, BadRequest, Conflict, others."""
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
    vmi = rest.store.latest(storage(VIRTUAL_MACHINE_INSTANCE), call.key)
    request = Request(found.document(), vmi.document() if vmi else None, options)
    if call.subresource not in OPERATIONS:
        _require_own_vmi(request)
        return await forwarding.answer(
            rest.store, nodes, replace(call, kind=VIRTUAL_MACHINE_INSTANCE)
        )
    change = OPERATIONS[call.subresource](request)
    with_options = replace(call, query=kubevirt_options.query(call, options.dry_run))
    if call.subresource == MIGRATE:
        _ = await rest.create_object(*_migration(with_options, options))
        return Response(status=202)
    staged = await _staged(rest, with_options, change, found, vmi)
    rest.require_newest(call.kind, call.key, found)
    rest.require_newest(VIRTUAL_MACHINE_INSTANCE, call.key, vmi)
    if "All" not in (options.dry_run or ()):
        await asyncio.gather(*(rest.put(update, new) for update, new in staged))
    return Response(status=202)


def _require_own_vmi(request: Request) -> None:
    owners = at(request.vmi, "metadata", "ownerReferences") or ()
    if request.vmi is None or all(each["uid"] != request.vm["metadata"]["uid"] for each in owners):
        raise request.conflict("VMI is not started")


def _migration(call: Call, options: Options) -> tuple[Call, Document]:
    """Return the call that creates a migration of the VMI, and the migration."""
    creation = replace(
        call,
        kind=MIGRATION,
        version=MIGRATION.versions[0],
        verb="create",
        name="",
        user=SERVER,
        group=MIGRATION.group,
        subresource="",
    )
    document: Document = {
        "apiVersion": MIGRATION.api_version,
        "kind": MIGRATION.name,
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": call.namespace},
        "spec": {"vmiName": call.name},
    }
    if options.added_node_selector:
        document["spec"]["addedNodeSelector"] = options.added_node_selector
    return creation, document


# --------------------------------------------------------------------- storing


async def _staged(
    rest: Updates, call: Call, change: Change, vm: Record, vmi: Record | None
) -> list[tuple[Call, Document]]:
    """Return the updates, each with the object to store, in order, after admission and validation.

    The VMI is last: after a crash between the writes it keeps its old grace period, but stops.
    """
    ours = replace(call, user=SERVER, group="kubevirt.io", subresource="")
    staged: list[tuple[Call, Document]] = []
    if change.spec:
        desired = vm.document()
        desired["spec"] |= change.spec
        if (new := await rest.evaluate_update(ours, vm, desired)) is not None:
            staged.append((ours, new))
    if change.requests:
        desired = vm.document()
        desired["status"] = _with_requests(desired.get("status") or {}, change.requests)
        of_status = replace(ours, subresource="status")
        if (new := await rest.evaluate_update(of_status, vm, desired)) is not None:
            staged.append((of_status, new))
    if change.grace_seconds is not None and vmi is not None:
        desired = vmi.document()
        desired["spec"]["terminationGracePeriodSeconds"] = change.grace_seconds
        of_vmi = replace(ours, kind=VIRTUAL_MACHINE_INSTANCE)
        if (new := await rest.evaluate_update(of_vmi, vmi, desired)) is not None:
            staged.append((of_vmi, new))
    return staged


def _with_requests(status: Document, requests: tuple[Document, ...]) -> Document:
    """Return the status with new requests and without the back-off of failed starts.

    A stop alone replaces pending requests; anything else is refused while some are pending.
    """
    stops = len(requests) == 1 and requests[0]["action"] == STOP
    if status.get("stateChangeRequests") and not stops:
        why = "unable to complete request: stop/start already underway"
        raise InternalError(f"Internal error occurred: {why}")
    kept = {name: value for name, value in status.items() if name != "startFailure"}
    return kept | {"stateChangeRequests": list(requests)}


# -------------------------------------------------------------------- deciding


def _start(request: Request) -> Change:
    if request.runs and request.phase not in ("", "Unknown"):
        raise request.conflict("VM is already running")
    paused = request.options.paused
    start: Document = {"action": START, **({"data": {PAUSED: "true"}} if paused else {})}
    if request.strategy in (ALWAYS, ONCE):
        raise request.conflict(f"{request.strategy} does not support manual start requests")
    if request.strategy == HALTED:
        return Change(requests=(start,)) if paused else Change(spec=_running(request, runs=True))
    if request.vmi is None or request.runs:
        return Change(requests=(start,))
    if request.strategy == RERUN_ON_FAILURE and request.phase == "Failed":
        raise request.conflict(f"{RERUN_ON_FAILURE} does not support starting VM from failed state")
    return Change(requests=(_stop_of(request), start))


def _stop(request: Request) -> Change:
    seconds = request.options.grace_period
    if seconds is not None and seconds < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    if fault := grace_period.fault(seconds):
        raise BadRequest(f"gracePeriod {fault}")
    if request.strategy in (ALWAYS, ONCE):
        return Change(
            spec=_running(request, runs=False), grace_seconds=seconds if request.runs else None
        )
    if not request.runs:
        raise request.conflict(_NOT_RUNNING)
    if request.strategy == HALTED:
        current = at(request.vmi, "spec", "terminationGracePeriodSeconds")
        if seconds is None or (current is not None and seconds >= current):
            why = "only supports manual stop requests with a shorter graceperiod"
            raise request.conflict(f"{HALTED} {why}")
    return Change(requests=(_stop_of(request),), grace_seconds=seconds)


def _restart(request: Request) -> Change:
    seconds = request.options.grace_period_seconds
    if seconds is not None and seconds > 0:
        raise BadRequest("For force restart, only gracePeriod=0 is supported for now")
    if seconds is not None and seconds < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    if request.strategy in (HALTED, ONCE):
        # The misspelling is KubeVirt's.
        why = f"RunStategy {request.strategy} does not support manual restart requests"
        raise request.conflict(why)
    if request.vmi is None:
        raise request.conflict(f"{_NOT_RUNNING}: {HALTED}")
    requests = (_stop_of(request), {"action": START})
    # KubeVirt's minimum for a safe restart is one second.
    return Change(
        requests=requests, grace_seconds=None if seconds is None or not request.runs else 1
    )


def _migrate(request: Request) -> Change:
    if request.vmi is None:
        raise kubevirt_options.not_found(VIRTUAL_MACHINE_INSTANCE, request.name)
    if request.phase != "Running":
        raise request.conflict(_NOT_RUNNING)
    return Change()


def _stop_of(request: Request) -> Document:
    """Return the request to stop the current VMI, and no later one."""
    assert request.vmi is not None
    return {"action": STOP, "uid": request.vmi["metadata"]["uid"]}


def _running(request: Request, *, runs: bool) -> Document:
    """Return the change of the run strategy, in the field that the VirtualMachine uses."""
    if at(request.vm, "spec", "runStrategy") is not None:
        return {"runStrategy": ALWAYS if runs else HALTED}
    return {"running": runs}


def _dump(request: Request) -> Change:
    """Raise BadRequest.  virtctl may have created a claim, which only its user may delete."""
    why = "memory dumps are not supported by this version"
    claim = request.options.claim_name
    if claim:
        namespace = request.vm["metadata"]["namespace"]
        why += (
            f"; the claim {claim} is left as it is: if it was made for the dump, delete it with "
            f"kubectl delete pvc {claim} -n {namespace}"
        )
    raise BadRequest(why)


MIGRATE: Final = "migrate"
PORT_FORWARD: Final = "portforward"
EXPAND: Final = "expand-spec"
"""Returns the VirtualMachine with its instance type and preference applied."""
OPERATIONS: Mapping[str, Decide] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    MIGRATE: _migrate,
    "memorydump": _dump,
    "removememorydump": _dump,
}
"""Subresources that change a VirtualMachine."""
