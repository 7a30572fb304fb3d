"""Why a machine cannot move to another node while it runs: the condition LiveMigratable.

KubeVirt tells the first thing that is in the way, the network before all else (virt-handler's
calculateLiveMigrationCondition).  Here nothing moves: nodes are on one host.
"""

from typing import Final

from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

LIVE_MIGRATABLE: Final = "LiveMigratable"
_BRIDGED_TOO: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
_UNPORTABLE: Final = (
    "cannot migrate VMI which does not use masquerade or a migratable plugin to connect to the pod "
    "network"
)
_BRIDGED: Final = ("InterfaceNotLiveMigratable", _UNPORTABLE)
_NOWHERE: Final = (
    "MigrationNotSupported",
    "cannot migrate VMI: live migration is not supported, since all nodes are on this host",
)


def live_migratable(vmi: VirtualMachineInstance) -> tuple[str, str, str]:
    """The condition's status, reason and message."""
    return ("False", *(_BRIDGED if _is_tied(vmi) else _NOWHERE))


def _is_tied(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has the address of its pod, which stays behind."""
    if _BRIDGED_TOO in vmi.metadata.annotations:
        return False
    pods = {network.name for network in vmi.spec.networks if network.pod is not None}
    cards = vmi.spec.domain.devices.interfaces
    return any(card.name in pods and not _is_portable(card) for card in cards)


def _is_portable(card: Interface) -> bool:
    return any(each is not None for each in (card.masquerade, card.passt_binding, card.binding))
