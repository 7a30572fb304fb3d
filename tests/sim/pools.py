"""A pool for tests, with helpers to change and observe it."""

import asyncio
import copy

from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import PersistentVolumeClaim, Pod
from tests.sim import provisioner
from tests.sim.cluster import Cluster

from corral.api.errors import NotFound
from corral.api.kinds.cdi.population import PHASE, SUCCEEDED, is_populated
from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL, VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of, version_of
from corral.reconcile.workqueue import WorkQueue

LABELS = {"pool": "web"}
IMAGE = "cirros:1"


def pool(
    name="web", replicas=3, *, image=IMAGE, vm_labels=None, vm=None, spec=None, **more
) -> dict:
    """A pool's document.

    ``vm`` is merged over its VirtualMachines' spec, ``spec`` over their machines', ``more`` over
    the pool's.
    """
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "virtualMachineTemplate": {
                "metadata": {"labels": {**LABELS, **(vm_labels or {})}},
                "spec": {
                    "runStrategy": "Always",
                    "template": {
                        "metadata": {"labels": LABELS},
                        "spec": {
                            "terminationGracePeriodSeconds": 0,
                            "domain": {
                                "memory": {"guest": "64Mi"},
                                "devices": {"disks": [{"name": "root", "disk": {}}]},
                            },
                            "volumes": [{"name": "root", "containerDisk": {"image": image}}],
                            **(spec or {}),
                        },
                    },
                    **(vm or {}),
                },
            },
            **copy.deepcopy(more),
        },
    }


def filler(context):
    """Controller that populates volumes at once, without content."""
    queue = WorkQueue()
    claims = context.informers.of(PersistentVolumeClaim)

    def changed(_old, new):
        if new is not None:
            queue.add(key_of(new))

    async def reconcile(key):
        claim = claims.get(key)
        if claim is not None and claim.spec.volumeName and not is_populated(claim):
            change = {"metadata": {"annotations": {PHASE: SUCCEEDED}}}
            await context.client.patch(PersistentVolumeClaim, key, change)

    claims.handle(changed)
    return Controller("filler", reconcile, queue=queue, sources=(claims,))


STORAGE = (provisioner.controller, filler)
"""Loops that play a storage."""


class Pools:
    """The pool ``web`` of a cluster."""

    def __init__(self, c: Cluster, name: str = "web") -> None:
        self.c = c
        self.key = Key("default", name)

    async def create(self, replicas=3, **fields) -> None:
        await self.c.client.create(Pool, pool(self.key.name, replicas, **fields))

    async def get(self) -> Pool:
        return await self.c.client.get(Pool, self.key.name, "default")

    async def patch(self, **spec) -> None:
        await self.c.client.patch(Pool, self.key, {"spec": spec})

    async def template(self, change: dict) -> None:
        """Merge a change into the spec of the VirtualMachines' template."""
        await self.patch(virtualMachineTemplate=change)

    async def image(self, image: str) -> None:
        """Change the image, so that the VMIs are recreated."""
        volumes = [{"name": "root", "containerDisk": {"image": image}}]
        await self.template({"spec": {"template": {"spec": {"volumes": volumes}}}})

    async def vms(self) -> dict[str, VirtualMachine]:
        """Every VirtualMachine, by name."""
        found = (await self.c.client.list(VirtualMachine, "default")).items
        return {vm.metadata.name: vm for vm in found}

    async def vm(self, number: int) -> VirtualMachine:
        return (await self.vms())[f"{self.key.name}-{number}"]

    async def names(self) -> set[str]:
        return set(await self.vms())

    async def machines(self):
        return {machine.metadata.name: machine for machine in await self.c.machines("default")}

    async def delete(self, number: int, **options) -> None:
        await self.c.client.delete(
            VirtualMachine, Key("default", f"{self.key.name}-{number}"), **options
        )

    async def change(self, number: int, metadata: dict) -> None:
        key = Key("default", f"{self.key.name}-{number}")
        await self.c.client.patch(VirtualMachine, key, {"metadata": metadata})

    async def until_ready(self, replicas: int, seconds: float = 120.0) -> None:
        """Wait until the pool has so many VirtualMachines, all ready, all up to date."""

        async def is_ready_now() -> bool:
            one = await self.get()
            if not one.status.replicas == one.status.ready_replicas == replicas:
                return False
            owned = [vm for vm in (await self.vms()).values() if is_of(vm, one)]
            machines = await self.machines()
            return (
                len(owned) == replicas
                and all(vm.metadata.deletion_timestamp is None for vm in owned)
                and all(
                    vm.metadata.name in machines
                    and machines[vm.metadata.name].status.phase == "Running"
                    and machines[vm.metadata.name].metadata.labels[REVISION_LABEL]
                    == vm.metadata.labels[REVISION_LABEL]
                    for vm in owned
                )
                and not one.status.conditions
            )

        await self.c.until(is_ready_now, seconds)

    async def until_gone(self, name: str, uid: str = "", seconds: float = 120.0) -> None:
        """Wait until a VirtualMachine is deleted."""

        async def is_gone() -> bool:
            found = (await self.vms()).get(name)
            return found is None or (bool(uid) and found.metadata.uid != uid)

        await self.c.until(is_gone, seconds)

    async def events(self, reason: str = "") -> list[str]:
        found = await self.c.events(self.key.name)
        return [one.message for one in found if not reason or one.reason == reason]

    async def revisions(self) -> set[str]:
        found = (await self.c.client.list(ControllerRevision, "default")).items
        names = {key_of(one).name for one in found}
        return {name for name in names if not name.startswith("revision-start-vm-")}

    async def until_finalizers_are_removed(self, seconds: float = 60.0) -> None:
        """Wait until VirtualMachines without a pool have no finalizer of one."""

        async def is_so() -> bool:
            try:
                uid = (await self.get()).metadata.uid
            except NotFound:
                uid = ""
            return all(
                FINALIZER not in vm.metadata.finalizers
                or any(owner.uid == uid for owner in vm.metadata.owner_references)
                for vm in (await self.vms()).values()
            )

        await self.c.until(is_so, seconds)

    async def until_stable(self, seconds: float = 3.0) -> None:
        """Wait until nothing changes for a while."""
        before = None
        while before != (now := await self._versions()):
            before = now
            await asyncio.sleep(seconds)

    async def _versions(self) -> list[str]:
        views = (Pool, VirtualMachine, Machine, Pod)
        found = [one for view in views for one in (await self.c.client.list(view)).items]
        return sorted(map(version_of, found))


def is_of(vm: VirtualMachine, one: Pool) -> bool:
    return any(owner.uid == one.metadata.uid for owner in vm.metadata.owner_references)
