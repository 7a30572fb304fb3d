"""Index of the machines of a node, by pod, VMI, claim and image."""

from collections.abc import Iterator, Mapping

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.hotplug import READY, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.api.object import Key
from corral.node.images.reference import refers_to
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling.sampler import RunningPod
from corral.node.state.facts import State
from corral.reconcile.indexes import by_controller
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of


class MachineIndex:
    """Looks up ``machines``, which are keyed by pod, and the pods and VMIs that they belong to."""

    def __init__(
        self,
        machines: Mapping[Key, Machine],
        pods: Informer[Pod],
        instances: Informer[VirtualMachineInstance],
    ) -> None:
        self._machines = machines
        self._pods = pods
        self._instances = instances
        pods.index(by_controller)
        instances.index(_uid)

    def instance(self, uid: str) -> VirtualMachineInstance | None:
        return next(iter(self._instances.indexed(_uid, uid)), None)

    def pods_of(self, uid: str) -> Iterator[Key]:
        """Iterate over the pods of a VMI on this node."""
        return map(key_of, self._pods.indexed(by_controller, uid))

    def machine_of_pod(self, key: Key) -> Machine | None:
        return self._machines.get(key)

    def machine_of_instance(self, key: Key, uid: str) -> Machine | None:
        """Return the machine of a VMI, by name and uid.

        A VMI that has migrated may have several: the one that has its guest, or else any.
        """
        found = [
            machine
            for pod in self.pods_of(uid)
            if (machine := self._machines.get(pod)) is not None
            and machine.record.instance == key.name
        ]
        own = (each for each in found if not (each.facts.ended or each.facts.elsewhere))
        return next(own, next(iter(found), None))

    def machines_with(self, claim: Key) -> Iterator[tuple[Machine, VirtualMachineInstance, str]]:
        """Iterate over machines that use a claim, with their VMIs and the claim's volumes."""
        for machine in self._machines.values():
            vmi = self.instance(machine.record.uid)
            if vmi is None or machine.facts.ended or vmi.metadata.namespace != claim.namespace:
                continue
            for volume, name in claims_of(vmi.spec.volumes).items():
                if name == claim.name:
                    yield machine, vmi, volume

    def users(self, vmi: VirtualMachineInstance, volume: str) -> str:
        """Name the other VMIs that run with the claim behind a volume; empty if none does."""
        claim = Key(vmi.metadata.namespace, claims_of(vmi.spec.volumes).get(volume, ""))
        names = {
            other.metadata.name
            for machine, other, its in self.machines_with(claim)
            if other.metadata.uid != vmi.metadata.uid and _has(machine, other, its)
        }
        return f"the claim {claim.name} is in use by {', '.join(sorted(names))}" if names else ""

    def waiting(self, vmi: VirtualMachineInstance) -> Iterator[Machine]:
        """Iterate over machines that have not started and share a claim with this one."""
        for name in claims_of(vmi.spec.volumes).values():
            for machine, _, _ in self.machines_with(Key(vmi.metadata.namespace, name)):
                if machine.facts.state is not State.RUNNING:
                    yield machine

    def without(self, image: str) -> Iterator[Machine]:
        """Iterate over machines that may wait for this image (a full reference) to start."""
        for machine in self._machines.values():
            vmi = self.instance(machine.record.uid)
            if vmi is None or machine.facts.ended or machine.facts.state is State.RUNNING:
                continue
            if any(_may_miss(machine, each, image) for each in vmi.spec.volumes):
                yield machine

    def running_pods(self) -> Iterator[RunningPod]:
        """Iterate over running pods with their machines."""
        for key, machine in self._machines.items():
            pod = self._pods.get(key)
            if pod is not None and machine.facts.state is State.RUNNING:
                yield RunningPod(pod, machine)


def _has(machine: Machine, vmi: VirtualMachineInstance, volume: str) -> bool:
    """Report whether a machine runs with a volume; a hotplugged one counts once plugged in."""
    if volume in hotplug_disks(vmi.spec):
        plugged = (machine.facts.plugs or {}).get(volume)
        return plugged is not None and plugged.phase == READY
    return machine.facts.state is State.RUNNING


def _may_miss(machine: Machine, volume: Volume, image: str) -> bool:
    """Report whether a volume is of that image, and no other problem blocks the machine."""
    trouble = machine.facts.trouble
    return (
        volume.container_disk is not None
        and refers_to(volume.container_disk.image, image)
        and (trouble is None or trouble.volume == volume.name)
    )


def _uid(vmi: VirtualMachineInstance) -> tuple[str]:
    return (vmi.metadata.uid,)
