"""The roles of KubeVirt and of its importer of disks.

Like KubeVirt's own they do not allow ``scale``: editors change ``spec.replicas``, and autoscalers
have their rights from Kubernetes' roles.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.object import Document
from corral.daemon.rbac.notation import (
    BOOTSTRAPPING,
    READ,
    binding,
    group,
    role,
    rule,
)

_LABELS = {"kubevirt.io": ""}
_CDI_LABELS = {"app.kubernetes.io/component": "storage", "cdi.kubevirt.io": ""}
_SUBRESOURCES: Final = "subresources.kubevirt.io"
_EDIT: Final = "get delete create update patch list watch"
_ADMIN: Final = f"{_EDIT} deletecollection"
_GROUPS = {
    "kubevirt.io": (
        "virtualmachines virtualmachineinstances virtualmachineinstancepresets "
        "virtualmachineinstancereplicasets"
    ),
    "snapshot.kubevirt.io": (
        "virtualmachinesnapshots virtualmachinesnapshotcontents virtualmachinerestores"
    ),
    "export.kubevirt.io": "virtualmachineexports",
    "clone.kubevirt.io": "virtualmachineclones",
    "instancetype.kubevirt.io": (
        "virtualmachineinstancetypes virtualmachineclusterinstancetypes "
        "virtualmachinepreferences virtualmachineclusterpreferences"
    ),
    "pool.kubevirt.io": "virtualmachinepools",
}
"""Resources that users create, by group."""


def _below(resource: str, names: str) -> str:
    return " ".join(f"{resource}/{name}" for name in names.split())


_GUEST_INFO = _below(
    "virtualmachineinstances",
    "guestosinfo filesystemlist userlist sev/fetchcertchain sev/querylaunchmeasurement",
)


def _common(verbs: str) -> Iterator[Document]:
    """Yield the rules that the admin and edit roles share."""
    instances = _below("virtualmachineinstances", "console vnc portforward usbredir objectgraph")
    yield rule("get", _SUBRESOURCES, f"{instances} {_GUEST_INFO}")
    changes = (
        "pause unpause addvolume removevolume freeze unfreeze softreboot reset evacuate/cancel "
        "sev/setupsession sev/injectlaunchsecret"
    )
    yield rule("update", _SUBRESOURCES, _below("virtualmachineinstances", changes))
    vms = _below("virtualmachines", "expand-spec portforward objectgraph")
    yield rule("get", _SUBRESOURCES, vms)
    orders = "start stop restart addvolume removevolume memorydump removememorydump evacuate/cancel"
    yield rule("update", _SUBRESOURCES, _below("virtualmachines", orders))
    yield rule("update", _SUBRESOURCES, "expand-vm-spec")
    yield from _resource_rules(verbs)


def _resource_rules(verbs: str) -> Iterator[Document]:
    for of, resources in _GROUPS.items():
        yield rule(verbs, of, resources)
    yield rule(READ, "kubevirt.io", "virtualmachineinstancemigrations")
    yield rule(READ, "migrations.kubevirt.io", "migrationpolicies")


_MIGRATE = (
    rule("update", _SUBRESOURCES, "virtualmachines/migrate"),
    rule(_ADMIN, "kubevirt.io", "virtualmachineinstancemigrations"),
)
_CLUSTER_TYPES = rule(
    READ,
    "instancetype.kubevirt.io",
    "virtualmachineclusterinstancetypes virtualmachineclusterpreferences",
)
_CDI: Final = "cdi.kubevirt.io"
_CDI_EDIT = (
    rule("*", _CDI, "datavolumes dataimportcrons datasources volumeimportsources "
         "volumeuploadsources volumeclonesources"),
    rule("create", _CDI, "datavolumes/source"),
    rule("*", "upload.cdi.kubevirt.io", "uploadtokenrequests"),
)  # fmt: skip
_CDI_VIEW = (
    rule(READ, _CDI, "cdiconfigs dataimportcrons datavolumes datasources objecttransfers "
         "storageprofiles volumeimportsources volumeuploadsources volumeclonesources"),
    rule("create", _CDI, "datavolumes/source"),
)  # fmt: skip

ROLES = (
    role(
        "kubevirt.io:default",
        rule("get list", "kubevirt.io", "kubevirts"),
        rule("get list", _SUBRESOURCES, "version guestfs"),
        labels={**_LABELS, **BOOTSTRAPPING},
    ),
    role(
        "kubevirt.io:admin",
        *_common(_ADMIN),
        rule("get", _SUBRESOURCES, "virtualmachineinstances/vnc/screenshot"),
        labels=_LABELS,
        part_of="admin",
    ),
    role(
        "kubevirt.io:edit",
        *_common(_EDIT),
        rule("get list", "kubevirt.io", "kubevirts"),
        labels=_LABELS,
        part_of="edit",
    ),
    role(
        "kubevirt.io:view",
        rule("get", _SUBRESOURCES, f"{_GUEST_INFO} virtualmachines/expand-spec"),
        rule("update", _SUBRESOURCES, "expand-vm-spec"),
        *_resource_rules(READ),
        labels=_LABELS,
        part_of="view",
    ),
    role("kubevirt.io:migrate", *_MIGRATE, labels=_LABELS),
    role("instancetype.kubevirt.io:view", _CLUSTER_TYPES, labels=_LABELS),
    role("cdi.kubevirt.io:admin", *_CDI_EDIT, labels=_CDI_LABELS, part_of="admin"),
    role("cdi.kubevirt.io:edit", *_CDI_EDIT, labels=_CDI_LABELS, part_of="edit"),
    role("cdi.kubevirt.io:view", *_CDI_VIEW, labels=_CDI_LABELS, part_of="view"),
    role("cdi.kubevirt.io:config-reader",
         rule(READ, _CDI, "cdiconfigs storageprofiles"), labels=_CDI_LABELS),
)  # fmt: skip

BINDINGS = (
    binding(
        "kubevirt.io:default",
        group("system:authenticated"),
        labels=_LABELS,
    ),
    binding("instancetype.kubevirt.io:view", group("system:authenticated"), labels=_LABELS),
    binding("cdi.kubevirt.io:config-reader", group("system:authenticated"), labels=_CDI_LABELS),
)
