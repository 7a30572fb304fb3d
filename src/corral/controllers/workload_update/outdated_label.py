"""Labels the VMIs that run in another launcher than their node starts machines in."""

from lightkube.models.core_v1 import Node

from corral.api.kinds.vmi.launcher import OUTDATED_LABEL, is_outdated, launcher_of_node
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.indexes import by_vmi_node
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Labels(context)
    return Controller(
        "outdated-launchers", loop.reconcile, queue=loop.queue, sources=(loop.vmis, loop.nodes)
    )


class Labels:
    """Caches of the controller; the keys are those of VMIs."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.vmis = context.informers.of(VMI)
        self.nodes = context.informers.of(Node)
        self._client = context.client
        self.vmis.index(by_vmi_node)
        self.vmis.handle(self._vmi_changed)
        self.nodes.handle(self._node_changed)

    async def reconcile(self, key: Key) -> None:
        """Add or remove the label of one VMI."""
        vmi = self.vmis.get(key)
        if vmi is None or self._is_labelled(vmi):
            return
        value = None if OUTDATED_LABEL in vmi.metadata.labels else ""
        metadata = {
            "resourceVersion": vmi.metadata.resource_version,
            "labels": {OUTDATED_LABEL: value},
        }
        await self._client.patch(VMI, key, {"metadata": metadata})

    def _is_labelled(self, vmi: VMI) -> bool:
        """Report whether the label of a VMI is as it is to be."""
        node = self.nodes.get(Key("", vmi.status.node_name))
        return is_outdated(vmi, node) is (OUTDATED_LABEL in vmi.metadata.labels)

    def _vmi_changed(self, _old: VMI | None, new: VMI | None) -> None:
        if new is not None and not self._is_labelled(new):
            self.queue.add(new.key)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        changed = new or old
        if changed is not None and launcher_of_node(old) != launcher_of_node(new):
            for vmi in self.vmis.indexed(by_vmi_node, key_of(changed).name):
                self._vmi_changed(None, vmi)
