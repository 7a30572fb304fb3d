"""Syncs pods to machines (a kubelet's syncPod), and machines' state back to the API."""

from lightkube.models.core_v1 import Pod

from corral.api.errors import ApiError, NotFound
from corral.api.kinds import kind_of
from corral.api.kinds.core.machine_nodes import LIVE_MIGRATION_LABEL
from corral.api.kinds.vmi.exclusive import is_exclusive
from corral.api.kinds.vmi.saved_memory import saves_to
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.volume_binding import is_finished
from corral.node.agent.machines import Machines
from corral.node.agent.migration_sync import MigrationSync
from corral.node.guest.guest_tasks import GuestTasks
from corral.node.limits.bounds import bounds_of
from corral.node.machine.lifecycle import Machine
from corral.node.state import machine_record as records
from corral.node.state.facts import Facts, Trouble
from corral.node.state.grace_period import guest_seconds, seconds_left
from corral.node.status import pod_admission
from corral.node.status.node_status import Host
from corral.node.status.status_manager import StatusManager
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Result
from corral.reconcile.deletion import exists, remove
from corral.reconcile.informer import Informer
from corral.reconcile.objects import (
    controller_uid,
    is_being_deleted,
    key_of,
    object_reference,
    uid_of,
)


class PodSync:
    """The reconciler of a node's pods."""

    def __init__(
        self,
        context: ControllerContext,
        host: Host,
        pods: Informer[Pod],
        machines: Machines,
        guest_tasks: GuestTasks,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._host = host
        self._pods = pods
        self._machines = machines
        self._guest_tasks = guest_tasks
        self._deleted_pods = DeletedPods(context, pods, machines)
        self._migrations = MigrationSync(context.client, host.name)
        self._status_manager = StatusManager(
            context,
            host.name,
            host.address,
            machines.saved_memories,
            alone=bool(host.registration.kubelet_port)
            and not host.labels.get(LIVE_MIGRATION_LABEL),
        )

    async def sync(self, key: Key) -> Result | None:
        """Pass the API's requests on to the pod's machine, and write changed status.

        Raises ApiError.
        """
        pod = self._pods.get(key)
        machine = self._machines.get(key)
        if machine is not None and (pod is None or uid_of(pod) != machine.record.pod_uid):
            if await self._deleted_pods.is_deleted(key, machine.record.pod_uid):
                await self._remove_orphan(key, machine)
            return None
        if pod is None:
            return None
        vmi = self._machines.index.instance(controller_uid(pod))
        if machine is None:
            machine = await self._start_machine(key, pod, vmi)
        if machine is None:
            return None
        if vmi is None and machine.facts.elsewhere:
            vmi = await self._moved_instance(machine, pod)
        elif not await self._is_certain(machine, vmi):
            return None
        await self._sync_machine(machine, pod, vmi)
        return None

    async def _sync_machine(
        self, machine: Machine, pod: Pod, vmi: VirtualMachineInstance | None
    ) -> None:
        """Pass the API's requests on to a machine, and write changed status.  Raises ApiError."""
        if vmi is not None and is_exclusive(vmi):
            machine.mark_exclusive()  # before a claim is plugged in
        self._guest_tasks.wake(machine.record.uid)
        self._pass_on_requests(machine, pod, vmi)
        if vmi is not None:
            await self._migrations.sync(machine, vmi)
        await self._status_manager.sync(machine, pod, vmi)
        if machine.facts.ended and is_being_deleted(pod):
            await self._deleted_pods.remove(pod)

    async def _is_certain(self, machine: Machine, vmi: VirtualMachineInstance | None) -> bool:
        """Report whether the VMI is cached or certainly deleted: the cache may lag or miss it."""
        of = machine.record
        key = Key(of.namespace, of.instance)
        kind = kind_of(VirtualMachineInstance)
        return vmi is not None or not await exists(self._client, key, of.uid, kind)

    async def _moved_instance(self, machine: Machine, pod: Pod) -> VirtualMachineInstance | None:
        """Return the VMI of a machine that has moved to another host, whose node alone caches it.

        None if it is deleted, or the end of the machine here is written.  Raises ApiError.
        """
        of = machine.record
        if machine.facts.ended and is_finished(pod):
            return None
        try:
            vmi = await self._client.get(VirtualMachineInstance, of.instance, of.namespace)
        except NotFound:
            return None
        return vmi if vmi.metadata.uid == of.uid else None

    async def _start_machine(
        self, key: Key, pod: Pod, vmi: VirtualMachineInstance | None
    ) -> Machine | None:
        """Start a machine for a pod, unless the pod has finished, waits or is rejected."""
        if is_being_deleted(pod):
            await self._deleted_pods.remove(pod)
            return None
        if is_finished(pod):
            return None
        if (objection := pod_admission.objection(pod)) is not None:
            if await self._status_manager.write_pod(pod, Facts(trouble=objection)):
                self._warn(pod, objection)
            return None
        if vmi is None or vmi.is_final or is_being_deleted(vmi):
            return None
        runs = self._machines.runs(vmi.metadata.uid)
        rejection = pod_admission.rejection(pod, vmi, runs=runs) or pod_admission.no_room(
            pod, self._host.pressures()
        )
        if rejection is not None:
            status = {"phase": "Failed", "reason": rejection.reason, "message": rejection.message}
            await self._client.patch(Pod, key, {"status": status}, subresource="status")
            self._warn(pod, rejection)
            return None
        return self._machines.begin(key, records.new(pod, vmi), vmi)

    def _warn(self, pod: Pod, why: Trouble) -> None:
        self._machines.kubelet_events.event(
            object_reference(pod), "Warning", why.reason, why.message
        )

    async def _remove_orphan(self, key: Key, machine: Machine) -> None:
        """End the machine of a pod that was force-deleted, and remove its remains."""
        machine.stop(0)
        if machine.facts.ended:
            await self._machines.erase(key, machine)
            self._deleted_pods.forget(machine.record.pod_uid)
            if self._pods.get(key) is not None:  # a new pod of that name
                self._machines.due(key)

    def _pass_on_requests(
        self, machine: Machine, pod: Pod, vmi: VirtualMachineInstance | None
    ) -> None:
        """Stop the machine if its pod or VMI is deleted, else request or cancel its save."""
        if vmi is None:
            machine.stop(0)
            return
        machine.set_bounds(bounds_of(pod))
        grace = guest_seconds(vmi)
        if (left := seconds_left(pod, vmi, self._clock())) is not None:
            machine.stop(left, in_order=grace == 0)
        elif self._machines.saved_memories is not None:
            machine.save(saves_to(vmi), grace, in_order=grace == 0)


class DeletedPods:
    """Removes pods that have ended, and knows those that the API server has reported deleted.

    Remains are removed only if the pod is certainly gone: an object that is missing in the cache
    may still exist, though damaged on the server's disk.
    """

    def __init__(self, context: ControllerContext, pods: Informer[Pod], machines: Machines) -> None:
        self._client = context.client
        self._machines = machines
        self._deleted: set[str] = set()
        self._removed: set[str] = set()
        """The uids of removed pods that are still cached."""
        pods.handle_deleted(self._on_deleted)

    async def is_deleted(self, key: Key, uid: str) -> bool:
        """Report whether the pod of this uid, which no cache has, is deleted.  Raises ApiError."""
        return uid in self._deleted or not await exists(self._client, key, uid, kind_of(Pod))

    async def remove(self, pod: Pod) -> None:
        """Remove a pod that has ended, once: it is cached until its event arrives.

        Raises ApiError.
        """
        uid = uid_of(pod)
        if uid in self._removed:
            return
        self._removed.add(uid)
        try:
            await remove(self._client, Pod, key_of(pod), uid, grace_seconds=0)
        except ApiError:
            self._removed.discard(uid)
            raise

    def forget(self, uid: str) -> None:
        """Drop a pod whose machine was removed."""
        self._deleted.discard(uid)

    def _on_deleted(self, pod: Pod) -> None:
        self._removed.discard(uid_of(pod))
        machine = self._machines.get(key_of(pod))
        if machine is not None and machine.record.pod_uid == uid_of(pod):
            self._deleted.add(uid_of(pod))
