"""Controller of VirtualMachines: creates and deletes their VMIs, writes status and events."""

import random

import msgspec
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.controller_revision import CONTROLLER_REVISION
from corral.api.kinds.kubevirt.virtualmachine import (
    ALWAYS,
    FINALIZER,
    GENERATION,
    START,
    VirtualMachine,
    VirtualMachineSpec,
    generation,
)
from corral.api.kinds.vmi.live_update import add_room
from corral.api.kinds.vmi.vmi import OBSERVED_VERSIONS, VirtualMachineInstance
from corral.api.object import Document, Key, Object
from corral.controllers.vm import live_update, vmi_template
from corral.controllers.vm.data_volumes import DataVolumes
from corral.controllers.vm.disks import names as disk_names
from corral.controllers.vm.errors import Refused
from corral.controllers.vm.instancetypes import Instancetypes
from corral.controllers.vm.live_update import LiveUpdate
from corral.controllers.vm.reference_watcher import References
from corral.controllers.vm.restart import restart_reason
from corral.controllers.vm.run_strategy import Plan, plan
from corral.controllers.vm.start_failure import RandomBelow
from corral.controllers.vm.status import StatusInputs, status_of, status_patch
from corral.controllers.vm.vmi_template import may_fork
from corral.controllers.vm.volume_requests import Volumes
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, uid_of
from corral.reconcile.ownership import adopt
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.spares import Spares
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance

COMPONENT = "virtualmachine-controller"
WORKERS = 64
"""VirtualMachines that are synced at once: most of that time is waiting for writes."""
BATCH_SECONDS = 0.05
"""Delay of events that only change the status, so that they are handled together."""
ORPHAN = "orphan"
"""Kubernetes' finalizer of an object whose dependents outlive it."""


def controller(
    context: ControllerContext, *, random_below: RandomBelow = random.randrange
) -> Controller[Key]:
    loop = VirtualMachines(context, random_below)
    return Controller(
        "vm",
        loop.reconcile,
        queue=loop.queue,
        sources=(
            loop.vms,
            loop.vmis,
            loop.revisions,
            *loop.references.sources,
            loop.disks.volumes,
            loop.disks.claims,
            *loop.spares.member_sources,
        ),
        workers=WORKERS,
    )


class VirtualMachines:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext, random_below: RandomBelow) -> None:
        self.queue = WorkQueue[Key]()
        self.vms = context.informers.of(VirtualMachine)
        self.vmis = context.informers.of(VMI)
        self.revisions = context.informers.metadata(CONTROLLER_REVISION)
        self.disks = DataVolumes(context, COMPONENT)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self.references = References(context, self.vms, self.queue)
        self._instancetypes = Instancetypes(context.client, self.revisions)
        self._volumes = Volumes(context.client, self._recorder)
        self.spares = Spares(context)
        self._random_below = random_below
        self.vms.index(_disks)
        self.revisions.index(by_controller)
        self.vms.handle(self._vm_changed)
        self.vmis.handle(self._vmi_changed)
        self.disks.volumes.handle(self._data_volume_changed)
        self.disks.claims.handle(self._claim_changed)
        retry_on_quota_increase(context, self.queue)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one VirtualMachine (KubeVirt's vm.go, execute)."""
        vm = self.vms.get(key)
        if vm is None:
            await self._release_orphan(key)
            return None
        if unmet := self._expectations.unmet_seconds(vm.metadata.uid):
            return Result(requeue_after=unmet)
        vmi = await self._claim(vm)
        if not is_being_deleted(vm):
            vm = await self._add_finalizer(vm)
        elif vmi is None or ORPHAN in vm.metadata.finalizers:
            await self._release(vm)
            return None
        decided = plan(vm, vmi, self._context.clock())
        refused: Refused | None = None
        try:
            vm, vmi = await self._execute(vm, vmi, decided)
        except Refused as refusal:
            refused = refusal
            vm = self.vms.get(key) or vm  # earlier steps may have changed it
        await self._update_status(vm, vmi, decided, refused)
        if refused is not None and isinstance(refused.__cause__, ApiError):
            raise refused.__cause__
        return Result(decided.wait_seconds) if decided.wait_seconds > 0 else None

    # -- ownership ---------------------------------------------------------------------------

    async def _claim(self, vm: VirtualMachine) -> VMI | None:
        """Return the VMI of the VirtualMachine; adopt one of its name without a controller."""
        vmi = self.vmis.get(vm.key)
        if vmi is None or controller_uid(vmi) == vm.metadata.uid:
            return vmi
        if controller_uid(vmi) or is_being_deleted(vm) or is_being_deleted(vmi):
            return None
        return next(iter(await adopt(self._client, vm, [vmi])), None)

    async def _add_finalizer(self, vm: VirtualMachine) -> VirtualMachine:
        """Add our finalizer and the annotations of the observed API versions."""
        metadata: Document = {}
        if FINALIZER not in vm.metadata.finalizers:
            metadata["finalizers"] = [*vm.metadata.finalizers, FINALIZER]
        if OBSERVED_VERSIONS.items() - vm.metadata.annotations.items():
            metadata["annotations"] = OBSERVED_VERSIONS
        if not metadata:
            return vm
        metadata["resourceVersion"] = vm.metadata.resource_version
        return await self._client.patch(VirtualMachine, vm.key, {"metadata": metadata})

    async def _release_orphan(self, key: Key) -> None:
        """Remove our finalizer from a VMI whose VirtualMachine is gone."""
        vmi = self.vmis.get(key)
        if vmi is not None:
            await self._release(vmi)

    async def _release(self, target: Object) -> None:
        if FINALIZER not in target.metadata.finalizers:
            return
        kept = [each for each in target.metadata.finalizers if each != FINALIZER]
        guard = {"resourceVersion": target.metadata.resource_version}
        try:
            await self._client.patch(
                type(target), target.key, {"metadata": {**guard, "finalizers": kept or None}}
            )
        except NotFound:
            return

    # -- acting ------------------------------------------------------------------------------

    async def _execute(
        self, vm: VirtualMachine, vmi: VMI | None, decided: Plan
    ) -> tuple[VirtualMachine, VMI | None]:
        """Execute the plan; return the updated VirtualMachine and VMI. Raises Refused."""
        if decided.request_start:
            vm = await self._request_start(vm)
        if decided.delete:
            assert vmi is not None
            await self._delete(vm, vmi)
        if is_being_deleted(vm):
            return vm, vmi
        vm = await self._instancetypes.sync(vm, vmi, self.references.policy)
        vm, vmi = await self._volumes.sync(vm, vmi)
        disks_ready = await self.disks.provide(vm, starting=decided.create)
        if decided.set_always:
            vm = await self._set_always(vm)
        if decided.create and disks_ready and self._is_free(vm.key):
            vmi = await self._create(vm)
        return vm, vmi

    async def _request_start(self, vm: VirtualMachine) -> VirtualMachine:
        requests = [*msgspec.to_builtins(vm.status.state_change_requests), {"action": START}]
        return await self._patch_status(vm, {"stateChangeRequests": requests})

    async def _set_always(self, vm: VirtualMachine) -> VirtualMachine:
        spec = {"running": True} if vm.spec.running is not None else {"runStrategy": ALWAYS}
        guard = {"resourceVersion": vm.metadata.resource_version}
        return await self._client.patch(VirtualMachine, vm.key, {"metadata": guard, "spec": spec})

    def _is_free(self, key: Key) -> bool:
        """Report whether the name is free. If not, the end of the other VMI enqueues the key."""
        other = self.vmis.get(key)
        return other is None or not is_being_deleted(other)

    async def _create(self, vm: VirtualMachine) -> VMI:
        try:
            await self._store_revision(vm)
            vmi = await self._create_vmi(vm)
        except ApiError as error:
            message = f"Error creating virtual machine instance: {error}"
            self._recorder.event(vm, "Warning", "FailedCreate", message)
            raise Refused("FailedCreate", f"Failure while starting VMI: {error}") from error
        message = (
            "Started the virtual machine by creating the new virtual machine instance "
            f"{vmi.metadata.name}"
        )
        self._recorder.event(vm, "Normal", "SuccessfulCreate", message)
        return vmi

    async def _create_vmi(self, vm: VirtualMachine) -> VMI:
        document = vmi_template.new_vmi(vm)
        await self._instancetypes.apply(vm, document)
        if (configuration := self.references.live_updates) is not None:
            add_room(document, configuration)
        if may_fork(vm, document):
            document["metadata"]["annotations"] |= self.spares.fork_annotations_of_member(vm)
        owner = vm.metadata.uid
        self._expectations.expect(owner, creations=1)
        try:
            return await self._client.create(VMI, document)
        except AlreadyExists:
            # An earlier create succeeded but its response was lost, or it is somebody else's.
            vmi = await self._client.get(VMI, vm.metadata.name, vm.metadata.namespace)
            if controller_uid(vmi) == owner and not is_being_deleted(vmi):
                if self.vmis.get(vm.key) is not None:
                    self._expectations.creation_observed(owner)
                return vmi
            self._expectations.creation_observed(owner)
            raise
        except ApiError:
            self._expectations.creation_observed(owner)
            raise

    async def _store_revision(self, vm: VirtualMachine) -> None:
        """Store the spec that the VMI is created from; delete that of the last VMI."""
        prefix, name = vmi_template.revision_prefix(vm), vmi_template.revision_name(vm)
        for cached in self.revisions.indexed(by_controller, vm.metadata.uid):
            key = key_of(cached)
            if key.name.startswith(prefix) and key.name != name:
                await remove(self._client, ControllerRevision, key, uid_of(cached))
        try:
            await self._client.create(ControllerRevision, vmi_template.revision(vm))
        except AlreadyExists:
            return

    async def _delete(self, vm: VirtualMachine, vmi: VMI) -> None:
        name, uid = vmi.metadata.name, vmi.metadata.uid
        self._expectations.expect(vm.metadata.uid, deletions=[uid])
        try:
            deleted = await remove(self._client, VMI, vmi.key, uid)
        except ApiError as error:
            self._expectations.deletion_observed(vm.metadata.uid, uid)
            message = f"Error deleting virtual machine instance {name}: {error}"
            self._recorder.event(vm, "Warning", "FailedDelete", message)
            failure = f"Failure attempting to delete VMI: {error}"
            raise Refused("FailedDelete", failure) from error
        if not deleted:
            self._expectations.deletion_observed(vm.metadata.uid, uid)  # it was already gone
            return
        message = f"Stopped the virtual machine by deleting the virtual machine instance {name}"
        self._recorder.event(vm, "Normal", "SuccessfulDelete", message)

    # -- status ------------------------------------------------------------------------------

    async def _update_status(
        self, vm: VirtualMachine, vmi: VMI | None, decided: Plan, refused: Refused | None
    ) -> None:
        restart = ""
        if vmi is not None and not (decided.delete or vmi.is_final or is_being_deleted(vmi)):
            vmi, restart = await self._compare(vm, vmi)
        inputs = StatusInputs(
            vmi=vmi, plan=decided, disks=self.disks.of(vm), refused=refused, restart=restart
        )
        new = status_of(vm, inputs, self._context.clock(), self._random_below)
        if changed := status_patch(vm.status, new):
            await self._patch_status(vm, changed)
        if vmi is not None and vmi.is_final:
            # Only now, after its conditions are copied into the status.
            await self._release(self.vmis.get(vmi.key) or vmi)

    async def _patch_status(self, vm: VirtualMachine, changed: Document) -> VirtualMachine:
        """Patch the status, guarded by the resource version: others write requests there."""
        guard = {"resourceVersion": vm.metadata.resource_version}
        return await self._client.patch(
            VirtualMachine, vm.key, {"metadata": guard, "status": changed}, subresource="status"
        )

    async def _compare(self, vm: VirtualMachine, vmi: VMI) -> tuple[VMI, str]:
        """Return the VMI, and why it needs a restart to match the spec; empty if it matches.

        Where nothing changed that needs a restart, the VMI gets what can change while it runs, and
        the new generation as an annotation.
        """
        ours = vmi.status.virtual_machine_revision_name.startswith(vmi_template.revision_prefix(vm))
        if ours and generation(vmi) == vm.metadata.generation:
            return vmi, ""
        started = await self._started_from(vmi)
        if started is None:
            return vmi, ""
        planned = await self._plan_update(vm, vmi, started)
        if planned.restart or planned.deferred:
            return vmi, planned.restart
        metadata: Document = {"annotations": {GENERATION: str(vm.metadata.generation)}}
        change: Document = {"metadata": metadata}
        if planned.change is not None:
            metadata["resourceVersion"] = vmi.metadata.resource_version
            change["spec"] = planned.change
        return await self._client.patch(VMI, vmi.key, change), ""

    async def _plan_update(
        self, vm: VirtualMachine, vmi: VMI, started: VirtualMachineSpec
    ) -> LiveUpdate:
        """Return what of a changed spec reaches the VMI while it runs."""
        if self.references.live_updates is None:
            return LiveUpdate(restart=restart_reason(started, vm.spec))
        try:
            old = await self._instancetypes.expanded(vm, started)
            new = await self._instancetypes.expanded(vm, vm.spec)
        except Refused:  # the instance type that it was started with is not there any more
            return LiveUpdate(restart=restart_reason(started, vm.spec))
        return live_update.plan(old, new, vmi, cpu_ratio=self.references.cpu_ratio)

    async def _started_from(self, vmi: VMI) -> VirtualMachineSpec | None:
        """Return the spec that a VMI was created from; None if it was not stored."""
        name = vmi.status.virtual_machine_revision_name
        if not name:
            return None
        try:
            kept = await self._client.get(ControllerRevision, name, vmi.metadata.namespace)
            return msgspec.convert(kept.data["spec"], VirtualMachineSpec)
        except (NotFound, KeyError, TypeError, msgspec.ValidationError):
            return None

    # -- event handlers ----------------------------------------------------------------------

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and _same_spec(old, new):
            self.queue.add_after(changed.key, BATCH_SECONDS)  # most often our own status
        else:
            self.queue.add(changed.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changed = new or old
        assert changed is not None
        key = changed.key
        for owner in {controller_uid(one) for one in (old, new) if one is not None}:
            if old is None:
                self._expectations.creation_observed(owner)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(owner, changed.metadata.uid)
        if self.vms.get(key) is None and (new is None or FINALIZER not in new.metadata.finalizers):
            return  # most often of a replica set: no VM waits for it, no finalizer keeps it
        if old is not None and new is not None and old.status.phase == new.status.phase:
            self.queue.add_after(key, BATCH_SECONDS)
        else:
            self.queue.add(key)

    def _data_volume_changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        changed = new or old
        assert changed is not None
        for vm in self.vms.indexed(_disks, str(changed.key)):
            self.disks.report_failure(vm, old, new)
            self.queue.add(vm.key)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        changed = new or old
        assert changed is not None
        for vm in self.vms.indexed(_disks, str(key_of(changed))):
            self.queue.add_after(vm.key, BATCH_SECONDS)


def _disks(vm: VirtualMachine) -> list[str]:
    return [str(Key(vm.metadata.namespace, name)) for name in disk_names(vm)]


def _same_spec(old: VirtualMachine, new: VirtualMachine) -> bool:
    return (
        old.spec == new.spec
        and is_being_deleted(old) is is_being_deleted(new)
        and old.status.state_change_requests == new.status.state_change_requests
    )
