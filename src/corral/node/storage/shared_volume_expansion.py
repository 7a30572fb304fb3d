"""Grows disks of a shared directory in the machines of this host, as a kubelet expands volumes.

The provisioner on the first host cannot grow a disk that a machine of another host has open.  It
reserves the space, sets the volume's capacity, and the claim's condition FileSystemResizePending;
the host of the machine grows the disk by its QEMU, and writes the claim's new capacity.  All hosts
that have the directory see the condition; those without the machine wait until it runs there.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import claims_of
from corral.api.object import Key
from corral.node.hypervisor import GuestError, NoMachineError
from corral.node.storage import provision_plan
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

RETRY_SECONDS: Final = 60.0
_COMPONENT: Final = "kubelet"


class SharedVolumeExpansion:
    """The claims of a shared directory whose disks are to grow.

    vmis: those of this host; storage: the directory's id; grow: resizes a claim's disk in the
    machines of this host that have it open.  Raises GuestError, and NoMachineError if none has.
    """

    def __init__(
        self,
        context: ControllerContext,
        vmis: Informer[VirtualMachineInstance],
        storage: str,
        node: str,
        grow: Callable[[Key, int], Awaitable[None]],
    ) -> None:
        self._queue = WorkQueue[Key]()
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._vmis = vmis
        self._volumes = context.informers.of(PersistentVolume)
        self._client = context.client
        self._recorder = context.recorder(_COMPONENT, node)
        self._storage = storage
        self._grow = grow
        self._claims.handle(self._claim_changed)
        self._vmis.handle(self._vmi_changed)
        sources = (self._claims, self._volumes, self._vmis)
        self.controller = Controller(
            "shared-storage-expansion", self._reconcile, queue=self._queue, sources=sources
        )

    def _claim_changed(
        self, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if new is not None and provision_plan.is_pending_on_node(new):
            self._queue.add(key_of(new))

    def _vmi_changed(
        self, _old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if new is not None and new.status.phase == "Running":
            for name in claims_of(new.spec.volumes).values():
                self._queue.add(Key(new.metadata.namespace, name))

    async def _reconcile(self, key: Key) -> Result | None:
        claim = self._claims.get(key)
        if claim is None or claim.spec is None or not provision_plan.is_pending_on_node(claim):
            return None
        volume = self._volumes.get(Key("", claim.spec.volumeName or ""))
        size = provision_plan.capacity_bytes(volume) if volume is not None else 0
        if volume is None or not size or not provision_plan.handle_in(volume, self._storage):
            return None
        try:
            await self._grow(key, size)
        except NoMachineError:
            # After a restart of the agent, a machine may not be adopted yet.
            return Result(requeue_after=RETRY_SECONDS) if self._is_used(key) else None
        except GuestError as error:
            message = f"the disk of volume {key_of(volume).name} is not resized: {error}"
            self._recorder.event(claim, "Warning", "FileSystemResizeFailed", message)
            return Result(requeue_after=RETRY_SECONDS)
        await self._client.patch(
            PersistentVolumeClaim,
            key,
            provision_plan.grown_status(claim, size),
            subresource="status",
        )
        message = f"the disk of volume {key_of(volume).name} has {size} bytes"
        self._recorder.event(claim, "Normal", "FileSystemResizeSuccessful", message)
        return None

    def _is_used(self, claim: Key) -> bool:
        """Return whether a VMI of this host has a claim."""
        return any(
            vmi.metadata.namespace == claim.namespace
            and claim.name in claims_of(vmi.spec.volumes).values()
            for vmi in self._vmis.items()
        )
