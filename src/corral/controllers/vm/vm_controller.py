"""The loop of VirtualMachines: makes and deletes their machines, tells how they are."""

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
)
from corral.api.kinds.vmi.vmi import OBSERVED_VERSIONS, VirtualMachineInstance
from corral.api.object import Document, Key, Object
from corral.controllers.vm import vmi_template as manufacture
from corral.controllers.vm.data_volumes import DataVolumes
from corral.controllers.vm.disks import names as disk_names
from corral.controllers.vm.errors import Refused
from corral.controllers.vm.instancetypes import Instancetypes
from corral.controllers.vm.reference_watcher import References
from corral.controllers.vm.restart import restart_reason
from corral.controllers.vm.run_strategy import Plan, plan
from corral.controllers.vm.start_failure import Dice
from corral.controllers.vm.status import Facts, change, generation, status_of
from corral.controllers.vm.volume_requests import Volumes
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, uid_of
from corral.reconcile.ownership import adopt
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.workqueue import WorkQueue

Machine = VirtualMachineInstance

COMPONENT = "virtualmachine-controller"
WORKERS = 64
"""VirtualMachines that are worked on at once: most of that time is waiting for writes."""
BATCH_SECONDS = 0.05
"""News that only changes what is told waits so long for more of the kind."""
ORPHAN = "orphan"
"""Kubernetes' finalizer of an object whose dependents are to outlive it."""


def controller(context: ControllerContext, *, dice: Dice = random.randrange) -> Controller[Key]:
    """The controller of VirtualMachines."""
    loop = VirtualMachines(context, dice)
    return Controller(
        "vm",
        loop.reconcile,
        queue=loop.queue,
        sources=(
            loop.vms,
            loop.machines,
            loop.revisions,
            *loop.references.sources,
            loop.disks.volumes,
            loop.disks.claims,
        ),
        workers=WORKERS,
    )


class VirtualMachines:
    """The loop's caches and what it remembers between two looks at a VirtualMachine."""

    def __init__(self, context: ControllerContext, dice: Dice) -> None:
        self.queue = WorkQueue[Key]()
        self.vms = context.informers.of(VirtualMachine)
        self.machines = context.informers.of(Machine)
        self.revisions = context.informers.metadata(CONTROLLER_REVISION)
        self.disks = DataVolumes(context, COMPONENT)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self.references = References(context, self.vms, self.queue)
        self._instancetypes = Instancetypes(context.client, self.revisions)
        self._volumes = Volumes(context.client, self._recorder)
        self._dice = dice
        self.vms.index("disks", _disks)
        self.revisions.index("controller", lambda revision: (controller_uid(revision),))
        self.vms.handle(self._vm_changed)
        self.machines.handle(self._machine_changed)
        self.disks.volumes.handle(self._data_volume_changed)
        self.disks.claims.handle(self._claim_changed)
        retry_on_quota_increase(context, self.queue)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one VirtualMachine a step further (KubeVirt's vm.go, execute)."""
        vm = self.vms.get(key)
        if vm is None:
            await self._release_orphan(key)
            return None
        if unmet := self._expectations.unmet_seconds(vm.metadata.uid):
            return Result(requeue_after=unmet)
        vmi = await self._claim(vm)
        if not is_being_deleted(vm):
            vm = await self._sign(vm)
        elif vmi is None or ORPHAN in vm.metadata.finalizers:
            await self._release(vm)
            return None
        decided = plan(vm, vmi, self._context.clock())
        refused: Refused | None = None
        try:
            vm, vmi = await self._carry_out(vm, vmi, decided)
        except Refused as refusal:
            refused = refusal
            vm = self.vms.get(key) or vm  # some of it was done before
        await self._tell(vm, vmi, decided, refused)
        if refused is not None and isinstance(refused.__cause__, ApiError):
            raise refused.__cause__
        return Result(decided.wait_seconds) if decided.wait_seconds > 0 else None

    # -- what belongs to the VirtualMachine --------------------------------------------------

    async def _claim(self, vm: VirtualMachine) -> Machine | None:
        """The machine of the VirtualMachine: its own, or one of its name that has no other."""
        vmi = self.machines.get(vm.key)
        if vmi is None or controller_uid(vmi) == vm.metadata.uid:
            return vmi
        if controller_uid(vmi) or is_being_deleted(vm) or is_being_deleted(vmi):
            return None
        return next(iter(await adopt(self._client, vm, [vmi])), None)

    async def _sign(self, vm: VirtualMachine) -> VirtualMachine:
        """Hold the VirtualMachine until its machine is gone, and say that it was noticed."""
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
        """A machine whose VirtualMachine is gone is not held for it."""
        vmi = self.machines.get(key)
        if vmi is not None:
            await self._release(vmi)

    async def _release(self, held: Object) -> None:
        if FINALIZER not in held.metadata.finalizers:
            return
        kept = [each for each in held.metadata.finalizers if each != FINALIZER]
        guard = {"resourceVersion": held.metadata.resource_version}
        try:
            await self._client.patch(
                type(held), held.key, {"metadata": {**guard, "finalizers": kept or None}}
            )
        except NotFound:
            return

    # -- acting ------------------------------------------------------------------------------

    async def _carry_out(
        self, vm: VirtualMachine, vmi: Machine | None, decided: Plan
    ) -> tuple[VirtualMachine, Machine | None]:
        """Do what was decided; answers how the two are now.  Raises Refused."""
        if decided.ask_for_start:
            vm = await self._ask_for_start(vm)
        if decided.delete:
            assert vmi is not None
            await self._delete(vm, vmi)
        if is_being_deleted(vm):
            return vm, vmi
        vm = await self._instancetypes.follow(vm, vmi, self.references.policy)
        vm, vmi = await self._volumes.follow(vm, vmi)
        settled = await self.disks.provide(vm, starting=decided.create)
        if decided.become_always:
            vm = await self._become_always(vm)
        if decided.create and settled and self._is_free(vm.key):
            vmi = await self._create(vm)
        return vm, vmi

    async def _ask_for_start(self, vm: VirtualMachine) -> VirtualMachine:
        requests = [*msgspec.to_builtins(vm.status.state_change_requests), {"action": START}]
        return await self._patch_status(vm, {"stateChangeRequests": requests})

    async def _become_always(self, vm: VirtualMachine) -> VirtualMachine:
        told = {"running": True} if vm.spec.running is not None else {"runStrategy": ALWAYS}
        guard = {"resourceVersion": vm.metadata.resource_version}
        return await self._client.patch(VirtualMachine, vm.key, {"metadata": guard, "spec": told})

    def _is_free(self, key: Key) -> bool:
        """Whether the name is free; where another's machine is just going, its end is news."""
        other = self.machines.get(key)
        return other is None or not is_being_deleted(other)

    async def _create(self, vm: VirtualMachine) -> Machine:
        try:
            await self._keep_revision(vm)
            vmi = await self._create_machine(vm)
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

    async def _create_machine(self, vm: VirtualMachine) -> Machine:
        document = manufacture.machine(vm)
        await self._instancetypes.complete(vm, document)
        owner = vm.metadata.uid
        self._expectations.expect(owner, creations=1)
        try:
            return await self._client.create(Machine, document)
        except AlreadyExists:
            # Made before, but the answer was lost; or it is somebody else's.
            vmi = await self._client.get(Machine, vm.metadata.name, vm.metadata.namespace)
            if controller_uid(vmi) == owner and not is_being_deleted(vmi):
                if self.machines.get(vm.key) is not None:
                    self._expectations.creation_observed(owner)
                return vmi
            self._expectations.creation_observed(owner)
            raise
        except ApiError:
            self._expectations.creation_observed(owner)
            raise

    async def _keep_revision(self, vm: VirtualMachine) -> None:
        """Keep what the machine is made from, in the place of what the last one was made from."""
        stem, name = manufacture.revision_stem(vm), manufacture.revision_name(vm)
        for known in self.revisions.indexed("controller", vm.metadata.uid):
            key = key_of(known)
            if key.name.startswith(stem) and key.name != name:
                await remove(self._client, ControllerRevision, key, uid_of(known))
        try:
            await self._client.create(ControllerRevision, manufacture.revision(vm))
        except AlreadyExists:
            return

    async def _delete(self, vm: VirtualMachine, vmi: Machine) -> None:
        name, uid = vmi.metadata.name, vmi.metadata.uid
        self._expectations.expect(vm.metadata.uid, deletions=[uid])
        try:
            asked = await remove(self._client, Machine, vmi.key, uid)
        except ApiError as error:
            self._expectations.deletion_observed(vm.metadata.uid, uid)
            message = f"Error deleting virtual machine instance {name}: {error}"
            self._recorder.event(vm, "Warning", "FailedDelete", message)
            told = f"Failure attempting to delete VMI: {error}"
            raise Refused("FailedDelete", told) from error
        if not asked:
            self._expectations.deletion_observed(vm.metadata.uid, uid)  # it went by itself
            return
        message = f"Stopped the virtual machine by deleting the virtual machine instance {name}"
        self._recorder.event(vm, "Normal", "SuccessfulDelete", message)

    # -- telling -----------------------------------------------------------------------------

    async def _tell(
        self, vm: VirtualMachine, vmi: Machine | None, decided: Plan, refused: Refused | None
    ) -> None:
        restart = ""
        if vmi is not None and not (decided.delete or vmi.is_final or is_being_deleted(vmi)):
            vmi, restart = await self._compare(vm, vmi)
        facts = Facts(
            vmi=vmi, plan=decided, disks=self.disks.of(vm), refused=refused, restart=restart
        )
        new = status_of(vm, facts, self._context.clock(), self._dice)
        if changed := change(vm.status, new):
            await self._patch_status(vm, changed)
        if vmi is not None and vmi.is_final:
            await self._release(self.machines.get(vmi.key) or vmi)  # what it told is written down

    async def _patch_status(self, vm: VirtualMachine, changed: Document) -> VirtualMachine:
        """Requests are written by others, too: never write over what was not seen."""
        guard = {"resourceVersion": vm.metadata.resource_version}
        return await self._client.patch(
            VirtualMachine, vm.key, {"metadata": guard, "status": changed}, subresource="status"
        )

    async def _compare(self, vm: VirtualMachine, vmi: Machine) -> tuple[Machine, str]:
        """Why the machine has to start anew to be as is wanted; empty if it need not.

        Where the VirtualMachine changed, but nothing that waits for a start, the machine is as the
        new one: that is noted on it.
        """
        ours = vmi.status.virtual_machine_revision_name.startswith(manufacture.revision_stem(vm))
        if ours and generation(vmi) == vm.metadata.generation:
            return vmi, ""
        started = await self._started_from(vmi)
        if started is None:
            return vmi, ""
        if reason := restart_reason(started, vm.spec):
            return vmi, reason
        change = {"metadata": {"annotations": {GENERATION: str(vm.metadata.generation)}}}
        return await self._client.patch(Machine, vmi.key, change), ""

    async def _started_from(self, vmi: Machine) -> VirtualMachineSpec | None:
        """What a machine was made from; None where that was not kept."""
        name = vmi.status.virtual_machine_revision_name
        if not name:
            return None
        try:
            kept = await self._client.get(ControllerRevision, name, vmi.metadata.namespace)
            return msgspec.convert(kept.data["spec"], VirtualMachineSpec)
        except (NotFound, KeyError, TypeError, msgspec.ValidationError):
            return None

    # -- what changed ------------------------------------------------------------------------

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and _asks_the_same(old, new):
            self.queue.add_after(changed.key, BATCH_SECONDS)  # most often our own status
        else:
            self.queue.add(changed.key)

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        assert changed is not None
        key = changed.key
        for owner in {controller_uid(one) for one in (old, new) if one is not None}:
            if old is None:
                self._expectations.creation_observed(owner)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(owner, changed.metadata.uid)
        if self.vms.get(key) is None and (new is None or FINALIZER not in new.metadata.finalizers):
            return  # a set's, most often: nobody waits for it here, and nothing holds it
        if old is not None and new is not None and old.status.phase == new.status.phase:
            self.queue.add_after(key, BATCH_SECONDS)
        else:
            self.queue.add(key)

    def _data_volume_changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        changed = new or old
        assert changed is not None
        for vm in self.vms.indexed("disks", str(changed.key)):
            self.disks.tell_of_failure(vm, old, new)
            self.queue.add(vm.key)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        changed = new or old
        assert changed is not None
        for vm in self.vms.indexed("disks", str(key_of(changed))):
            self.queue.add_after(vm.key, BATCH_SECONDS)


def _disks(vm: VirtualMachine) -> list[str]:
    return [str(Key(vm.metadata.namespace, name)) for name in disk_names(vm)]


def _asks_the_same(old: VirtualMachine, new: VirtualMachine) -> bool:
    return (
        old.spec == new.spec
        and is_being_deleted(old) is is_being_deleted(new)
        and old.status.state_change_requests == new.status.state_change_requests
    )
