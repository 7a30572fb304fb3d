"""The watchdog, and its action when the guest stops feeding it."""

from corral.node.qemu.domain import Domain, device
from corral.node.state.events import watchdog_action


def watchdog(domain: Domain) -> list[str]:
    action = watchdog_action(domain.vmi)
    return [*device("i6300esb", id="watchdog0"), "-action", f"watchdog={action}"] if action else []
