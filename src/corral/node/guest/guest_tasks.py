"""Tasks that run beside each guest: probes, hotplug, access credentials, user data."""

from collections.abc import Callable
from functools import partial

import msgspec
from lightkube.models.core_v1 import ConfigMap, Secret, ServiceAccount

from corral.aio import Background
from corral.api.kinds import kind_of
from corral.api.kinds.vmi.live_update import has_room
from corral.api.kinds.vmi.referenced_objects import named_objects
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.guest import fork_identity
from corral.node.guest.access_credentials import Credentials, applied_by_agent
from corral.node.guest.paused_spares import PausedSpares, may_be_paused
from corral.node.guest.resizing import Resizes
from corral.node.guest.user_data import UserData, is_given_user_data
from corral.node.guest.volume_hotplug import HotPlug
from corral.node.images.image import Image
from corral.node.images.store import ImageStore
from corral.node.machine.dependencies import Dependencies
from corral.node.machine.lifecycle import Machine
from corral.node.machine_index import MachineIndex
from corral.node.network.guest_ports import Ports
from corral.node.probes.prober import Prober, is_probed
from corral.node.state.events import MachineEvents
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of


class GuestTasks:
    """The tasks beside a node's guests; each sleeps until it is woken or has work to do."""

    def __init__(
        self,
        context: ControllerContext,
        index: MachineIndex,
        dependencies: Dependencies,
        images: ImageStore,
        ports: Ports,
    ) -> None:
        self._index = index
        self._ports = ports
        self._hotplug = HotPlug(index.instance, dependencies.drives, index.users)
        self._resizes = Resizes(index.instance)
        self._credentials = Credentials(dependencies.secret)
        self._user_data = UserData(index.instance, dependencies.secret)
        self._paused_spares = PausedSpares(index.instance)
        self._supplies = Supplies(context, self._supplied)
        images.handle(self._imported)

    def wake(self, uid: str) -> None:
        """Wake the tasks of a VMI that has changed, or whose guest has."""
        self._hotplug.wake(uid)
        self._resizes.wake(uid)
        self._credentials.wake(uid)
        self._user_data.wake(uid)
        self._paused_spares.wake(uid)

    def start_tasks(
        self,
        tasks: Background,
        vmi: VirtualMachineInstance | None,
        recorder: MachineEvents,
        machine: Machine,
    ) -> None:
        """Start the tasks of a guest; they run for as long as ``tasks`` does."""
        self._hotplug.start_tasks(tasks, machine, recorder)
        if vmi is None:
            return
        if has_room(vmi):
            self._resizes.start_tasks(tasks, machine, recorder)
        if is_probed(vmi) or machine.facts.unhealthy:
            tasks.start(Prober(vmi, self._ports, recorder).run(machine), name="probe")
        if machine.record.fork_of:
            tasks.start(fork_identity.renew(machine, vmi, recorder), name="identity")
        if applied_by_agent(vmi):
            tasks.start(self._credentials.run(machine, vmi, recorder), name="let in")
        if is_given_user_data(vmi):
            tasks.start(self._user_data.run(machine, recorder), name="user data")
        if may_be_paused(vmi) or machine.facts.paused_as_spare:
            tasks.start(self._paused_spares.run(machine), name="paused spare")

    def _supplied(self, vmi: VirtualMachineInstance) -> None:
        """Retry what may have waited for an object that the VMI names, and that has changed."""
        if (machine := self._index.machine_of_instance(vmi.key, vmi.metadata.uid)) is not None:
            machine.retry()
            self._credentials.wake(vmi.metadata.uid, stale=True)
            self._user_data.wake(vmi.metadata.uid)

    def _imported(self, image: Image) -> None:
        """Retry the starts of machines that may have waited for this image."""
        for machine in self._index.without(image.reference):
            machine.retry()


class Supplies:
    """The Secrets, ConfigMaps and ServiceAccounts that VMIs name.

    ``changed`` is called with each VMI that names an object that has changed.  The caches hold
    metadata only, and are shared with controllers.
    """

    def __init__(
        self, context: ControllerContext, changed: Callable[[VirtualMachineInstance], None]
    ) -> None:
        self._changed = changed
        self._instances = context.informers.of(VirtualMachineInstance)
        self._instances.index(_named)
        for view in (Secret, ConfigMap, ServiceAccount):
            kind = kind_of(view)
            context.informers.metadata(kind).handle(partial(self._on_change, kind.name))

    def _on_change(self, kind: str, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if (changed := new or old) is not None:
            key = key_of(changed)
            for vmi in self._instances.indexed(_named, f"{kind}/{key.namespace}/{key.name}"):
                self._changed(vmi)


def _named(vmi: VirtualMachineInstance) -> list[str]:
    namespace = vmi.metadata.namespace
    return [f"{each.kind}/{namespace}/{each.name}" for each in named_objects(vmi)]
