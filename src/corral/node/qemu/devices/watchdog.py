"""The watchdog, and what it does when the guest stops feeding it."""

from corral.node.qemu.domain import Domain, device


def watchdog(domain: Domain) -> list[str]:
    wanted = domain.vmi.spec.domain.devices.watchdog
    if wanted is None or wanted.i6300esb is None:
        return []
    action = wanted.i6300esb.action or "reset"
    return [*device("i6300esb", id="watchdog0"), "-action", f"watchdog={action}"]
