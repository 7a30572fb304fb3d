"""The memory of a guest in a file, and memory that is plugged into it while it runs.

The latter is a virtio-mem device, empty when the guest boots.  Machines have one only if their VMI
has room for more memory (``maxGuest``).  It takes no memory of the host, which only what the guest
uses of it does, and is no part of what a migration copies until then.
"""

from typing import Final

from corral.api.kinds.vmi.live_update import BLOCK_BYTES, boot_memory, max_memory_bytes
from corral.node.qemu.domain import Domain, device, option

MEMORY: Final = "memory0"
_BACKEND: Final = "memory0-backend"
_ALIGNMENT: Final = 8192
"""QEMU rounds the size of option ``-m`` up to this, and the backend must have the same."""
RAM: Final = "pc.ram"
"""The memory that a guest boots with: QEMU's own name, by which streams of memory call it, too."""


def memory(domain: Domain) -> list[str]:
    arguments = _pages(domain)
    room = max_memory_bytes(domain.vmi.spec.domain) - boot_memory(domain.vmi).rounded_up()
    if room <= 0:
        return arguments
    # A host that promises too much does not count what is not used yet; a strict one cannot.
    reserve = domain.is_strict
    backend = {"qom_type": "memory-backend-ram", "id": _BACKEND, "size": room, "reserve": reserve}
    plugged = {"memdev": _BACKEND, "block-size": BLOCK_BYTES, "requested-size": 0}
    arguments += option("object", **backend)
    return arguments + device("virtio-mem-pci", id=MEMORY, **plugged)


def _pages(domain: Domain) -> list[str]:
    """Return the backend of a guest that starts with the pages of a file, and never writes it."""
    if domain.pages is None:
        return []
    backend = {
        "qom_type": "memory-backend-file",
        "id": RAM,
        "mem-path": str(domain.pages),
        "size": -(-boot_memory(domain.vmi).rounded_up() // _ALIGNMENT) * _ALIGNMENT,
        "share": False,
    }
    return option("object", **backend)
