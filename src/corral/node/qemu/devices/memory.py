"""Memory that is plugged into a running guest: a virtio-mem device, empty when the guest boots.

Machines have one only if their VMI has room for more memory (``maxGuest``).  It takes no memory of
the host, which only what the guest uses of it does, and is no part of what a migration copies until
then.
"""

from typing import Final

from corral.api.kinds.vmi.live_update import BLOCK_BYTES, boot_memory, max_memory_bytes
from corral.node.qemu.domain import Domain, device, option

MEMORY: Final = "memory0"
_BACKEND: Final = "memory0-backend"


def memory(domain: Domain) -> list[str]:
    room = max_memory_bytes(domain.vmi.spec.domain) - boot_memory(domain.vmi).rounded_up()
    if room <= 0:
        return []
    # A host that promises too much does not count what is not used yet; a strict one cannot.
    reserve = domain.is_strict
    backend = {"qom_type": "memory-backend-ram", "id": _BACKEND, "size": room, "reserve": reserve}
    plugged = {"memdev": _BACKEND, "block-size": BLOCK_BYTES, "requested-size": 0}
    return [*option("object", **backend), *device("virtio-mem-pci", id=MEMORY, **plugged)]
