"""The memory balloon, by which a guest returns unused pages.

Every machine has one unless its VMI declines it, with free page reporting, as in KubeVirt: the
guest's kernel reports free pages by itself, and QEMU returns them to the host at once.
"""

from corral.node.qemu.domain import Domain, device


def balloon(domain: Domain) -> list[str]:
    if domain.vmi.spec.domain.devices.autoattach_mem_balloon is False:
        return []
    return device("virtio-balloon-pci", id="balloon0", **{"free-page-reporting": True})
