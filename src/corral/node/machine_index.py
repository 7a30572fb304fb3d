"""Who is on a node: its machines, found by what the API calls them."""

from collections.abc import Iterator, Mapping

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.hotplug import READY, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.api.object import Key
from corral.node.images.reference import means
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling.sampler import RunningPod
from corral.node.state.facts import State
from corral.reconcile.informer import Informer
from corral.reconcile.objects import controller_uid, key_of

_INSTANCE = "instance"


class Roster:
    """Looks up ``machines``, which are kept by their pods, and the objects that they are of."""

    def __init__(
        self,
        machines: Mapping[Key, Machine],
        pods: Informer[Pod],
        instances: Informer[VirtualMachineInstance],
    ) -> None:
        self._machines = machines
        self._pods = pods
        self._instances = instances
        pods.index(_INSTANCE, lambda pod: (controller_uid(pod),))
        instances.index("uid", lambda vmi: (vmi.metadata.uid,))

    def instance(self, uid: str) -> VirtualMachineInstance | None:
        return next(iter(self._instances.indexed("uid", uid)), None)

    def pods_of(self, uid: str) -> Iterator[Key]:
        """The pods on this node that an instance has."""
        return map(key_of, self._pods.indexed(_INSTANCE, uid))

    def machine_of_pod(self, key: Key) -> Machine | None:
        return self._machines.get(key)

    def machine_of_instance(self, key: Key, uid: str) -> Machine | None:
        """The machine of an instance, by name and uid."""
        for pod in self.pods_of(uid):
            machine = self._machines.get(pod)
            if machine is not None and machine.record.instance == key.name:
                return machine
        return None

    def machines_with(self, claim: Key) -> Iterator[tuple[Machine, VirtualMachineInstance, str]]:
        """The machines that have a claim, and the volumes that it is there."""
        for machine in self._machines.values():
            vmi = self.instance(machine.record.uid)
            if vmi is None or machine.facts.ended or vmi.metadata.namespace != claim.namespace:
                continue
            for volume, name in claims_of(vmi.spec.volumes).items():
                if name == claim.name:
                    yield machine, vmi, volume

    def users(self, vmi: VirtualMachineInstance, volume: str) -> str:
        """Which other machines run with the claim behind a volume, in words; empty for none."""
        claim = Key(vmi.metadata.namespace, claims_of(vmi.spec.volumes).get(volume, ""))
        names = {
            other.metadata.name
            for machine, other, its in self.machines_with(claim)
            if other.metadata.uid != vmi.metadata.uid and _has(machine, other, its)
        }
        return f"the claim {claim.name} is in use by {', '.join(sorted(names))}" if names else ""

    def waiting(self, vmi: VirtualMachineInstance) -> Iterator[Machine]:
        """The machines that have not started, and have a claim of this one."""
        for name in claims_of(vmi.spec.volumes).values():
            for machine, _, _ in self.machines_with(Key(vmi.metadata.namespace, name)):
                if machine.facts.state is not State.RUNNING:
                    yield machine

    def without(self, image: str) -> Iterator[Machine]:
        """The machines that have not started, and may miss an image of that full name."""
        for machine in self._machines.values():
            vmi = self.instance(machine.record.uid)
            if vmi is None or machine.facts.ended or machine.facts.state is State.RUNNING:
                continue
            if any(_may_miss(machine, each, image) for each in vmi.spec.volumes):
                yield machine

    def running_pods(self) -> Iterator[RunningPod]:
        """The pods that run, and their machines."""
        for key, machine in self._machines.items():
            pod = self._pods.get(key)
            if pod is not None and machine.facts.state is State.RUNNING:
                yield RunningPod(pod, machine)


def _has(machine: Machine, vmi: VirtualMachineInstance, volume: str) -> bool:
    """Whether a machine runs with a volume, which may be one that has yet to be plugged in."""
    if volume in hotplug_disks(vmi.spec):
        plugged = (machine.facts.plugs or {}).get(volume)
        return plugged is not None and plugged.phase == READY
    return machine.facts.state is State.RUNNING


def _may_miss(machine: Machine, volume: Volume, image: str) -> bool:
    """Whether a volume is of that image, and nothing else is known to be in the machine's way."""
    trouble = machine.facts.trouble
    return (
        volume.container_disk is not None
        and means(volume.container_disk.image, image)
        and (trouble is None or trouble.volume == volume.name)
    )
