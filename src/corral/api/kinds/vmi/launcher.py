"""The launcher of a machine: the hypervisor that it runs in, and how corral starts that.

A Node has the launcher of the machines that it starts, in an annotation; a VMI that of its own, in
``status.launcherContainerImageVersion``.  A VMI is outdated if they differ.
"""

from typing import Final

from lightkube.models.core_v1 import Node

from corral.api.kinds.vmi.vmi import VirtualMachineInstance

REVISION: Final = 1
"""Revision of how corral starts QEMU: a higher one makes all running machines outdated."""
NODE_LAUNCHER: Final = "corral.dev/launcher"
"""Annotation of a Node: the launcher of the machines that it starts."""
OUTDATED_LABEL: Final = "kubevirt.io/outdatedLauncherImage"
"""Label of a VMI that is outdated (KubeVirt's)."""
_IMAGE: Final = "corral/launcher"
UNRECORDED: Final = f"{_IMAGE}:0"
"""The launcher of a machine that a corral has started which did not record it."""


def launcher(hypervisor: str) -> str:
    """Return the launcher of machines in a hypervisor, such as ``QEMU 8.2.0 (Debian …)``."""
    return f"{_IMAGE}:{REVISION} {hypervisor}"


def launcher_of_node(node: Node | None) -> str:
    """Return the launcher of the machines that a node starts; "" if that is unknown."""
    annotations = (node.metadata and node.metadata.annotations) if node is not None else None
    found: str = (annotations or {}).get(NODE_LAUNCHER, "")
    return found


def is_outdated(vmi: VirtualMachineInstance, node: Node | None) -> bool:
    """Return whether a VMI runs in another launcher than its node starts machines in."""
    runs, starts = vmi.status.launcher_container_image_version, launcher_of_node(node)
    return bool(runs and starts) and runs != starts and not vmi.is_final


def difference(runs: str, starts: str) -> str:
    """Describe for people how the launcher of a machine differs from that of its node."""
    old, new = (each.partition(" ")[2] for each in (runs, starts))
    if old and old != new:
        return f"it runs in {old}, its node starts {new}"
    return "it was started by an earlier corral"
