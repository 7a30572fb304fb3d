"""The roles for corral's own kinds, which are part of Kubernetes' view, edit and admin."""

from typing import Final

from corral.api.kinds.corral.warm_pool import GROUP
from corral.daemon.rbac.notation import READ, WRITE, role, rule

_RESOURCES: Final = "virtualmachinewarmpools virtualmachineclaims virtualmachinecheckpoints"
_SCALED: Final = "virtualmachinewarmpools/scale"
_LABELS: Final = {GROUP: ""}
_EDIT: Final = (
    rule(WRITE, GROUP, _RESOURCES),
    rule("get patch update", GROUP, _SCALED),
)

ROLES: Final = (
    role(f"{GROUP}:admin", *_EDIT, labels=_LABELS, part_of="admin"),
    role(f"{GROUP}:edit", *_EDIT, labels=_LABELS, part_of="edit"),
    role(
        f"{GROUP}:view",
        rule(READ, GROUP, _RESOURCES),
        rule("get", GROUP, _SCALED),
        labels=_LABELS,
        part_of="view",
    ),
)
