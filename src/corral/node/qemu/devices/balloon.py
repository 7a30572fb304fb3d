"""The memory balloon, by which a guest gives back the pages that it does not use.

Every machine has one unless the instance declines it, with free page reporting, as in KubeVirt: the
guest's kernel reports free memory by itself, and QEMU returns it to the host at once.
"""

from corral.node.qemu.domain import Domain, device


def balloon(domain: Domain) -> list[str]:
    if domain.vmi.spec.domain.devices.autoattach_mem_balloon is False:
        return []
    return device("virtio-balloon-pci", id="balloon0", **{"free-page-reporting": True})
