"""A node reduced to what the loops see of it: it runs every pod at once, and ends it when asked."""

import asyncio
from contextlib import suppress

from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Node, Pod

from corral.api.errors import AlreadyExists, NotFound
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.time import rfc3339, rfc3339_micro
from corral.reconcile.controller import Controller
from corral.reconcile.objects import controller_uid, is_going, key_of, uid_of
from corral.reconcile.queue import WorkQueue
from corral.reconcile.world import World

Machine = VirtualMachineInstance
RENEW_SECONDS = 10


class Kubelet:
    """Registers a node, renews its lease, and plays the machines that are bound to it."""

    def __init__(self, world: World, name: str, *, cpu="2", memory="16Gi", pods="1000") -> None:
        self.name = name
        self.world = world
        self.client = world.client
        self.allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        self.queue = WorkQueue[Key]()
        self.pods = world.informers.of(Pod, fields=f"spec.nodeName={name}")
        self.machines = world.informers.of(Machine)
        self.pods.index("controller", lambda pod: (controller_uid(pod),))
        self.pods.handle(lambda old, new: self.queue.add(key_of(new or old)))
        self.machines.handle(self._machine_changed)
        self.boots = {}

    async def run(self) -> None:
        await self._register()
        controller = Controller(
            f"kubelet-{self.name}",
            self.reconcile,
            queue=self.queue,
            sources=(self.pods, self.machines),
            workers=32,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            tasks.create_task(self._renew())

    def _machine_changed(self, old, new):
        machine = new or old
        for pod in self.pods.indexed("controller", machine.metadata.uid):
            self.queue.add(key_of(pod))

    async def _register(self) -> None:
        status = {
            "capacity": self.allocatable,
            "allocatable": self.allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        document = {"metadata": {"name": self.name}, "status": status}
        try:
            await self.client.create(Node, document)
        except AlreadyExists:
            await self.client.patch(
                Node, Key("", self.name), {"status": status}, subresource="status"
            )

    async def _renew(self) -> None:
        key = Key("kube-node-lease", self.name)
        while True:
            spec = {
                "holderIdentity": self.name,
                "leaseDurationSeconds": 40,
                "renewTime": rfc3339_micro(self.world.clock()),
            }
            try:
                await self.client.patch(Lease, key, {"spec": spec})
            except NotFound:
                await self.client.create(
                    Lease,
                    {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec},
                )
            await asyncio.sleep(RENEW_SECONDS)

    async def reconcile(self, key: Key) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        machine = self._machine_of(pod)
        if pod.status.phase in ("Succeeded", "Failed"):
            return
        if is_going(pod) or machine is None or is_going(machine):
            await self._stop(pod, machine)
        elif pod.status.phase != "Running":
            await self._start(pod)
        elif machine.status.phase == "Scheduled":
            await self._say(machine, "Running")

    def _machine_of(self, pod):
        name = pod.metadata.ownerReferences[0].name
        machine = self.machines.get(Key(pod.metadata.namespace, name))
        return machine if machine and machine.metadata.uid == controller_uid(pod) else None

    async def _start(self, pod) -> None:
        now = rfc3339(self.world.clock())
        status = {
            "phase": "Running",
            "qosClass": "Burstable",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
            ],
            "containerStatuses": [
                {
                    "name": container.name,
                    "image": container.image,
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod.spec.containers
            ],
        }
        await self.client.patch(Pod, key_of(pod), {"status": status}, subresource="status")

    async def _stop(self, pod, machine) -> None:
        if machine is not None and machine.status.phase in ("Scheduled", "Running"):
            await self._say(machine, "Succeeded")
        if is_going(pod):
            with suppress(NotFound):
                await self.client.delete(Pod, key_of(pod), uid=uid_of(pod), grace_seconds=0)

    async def _say(self, machine, phase: str) -> None:
        transitions = [
            {
                "phase": each.phase,
                "phaseTransitionTimestamp": each.phase_transition_timestamp,
            }
            for each in machine.status.phase_transition_timestamps
        ]
        now = rfc3339(self.world.clock())
        transitions.append({"phase": phase, "phaseTransitionTimestamp": now})
        await self.client.patch(
            Machine,
            machine.key,
            {
                "metadata": {"resourceVersion": machine.metadata.resource_version},
                "status": {"phase": phase, "phaseTransitionTimestamps": transitions},
            },
        )
