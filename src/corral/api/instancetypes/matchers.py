"""Matchers: a VirtualMachine's references to an instance type and a preference.

The fields ``spec.instancetype`` and ``spec.preference`` work the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.api.kind import Kind
from corral.api.kinds.kubevirt.instancetype import (
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachinePreference,
)
from corral.api.kinds.kubevirt.instancetype_kinds import KINDS
from corral.api.object import Document

_VIEWS = {kind.view: kind for kind in KINDS}


@dataclass(frozen=True, slots=True, eq=False)
class Matcher:
    """One of the two reference fields.

    field: its name in a VirtualMachine's spec.
    of_cluster, of_namespace: the kinds that it may name.
    name_label, kind_label: labels of a volume from which the reference is inferred.
    """

    field: str
    cluster_kind: Kind
    namespaced_kind: Kind

    @property
    def status_field(self) -> str:
        """The field of the status with the reference in use."""
        return f"{self.field}Ref"

    @property
    def name_label(self) -> str:
        return f"instancetype.kubevirt.io/default-{self.field}"

    @property
    def kind_label(self) -> str:
        return f"{self.name_label}-kind"

    def kind(self, named: str) -> Kind | None:
        """Return the kind that a reference names, in the spellings that KubeVirt accepts."""
        if not named:
            return self.cluster_kind
        for kind in (self.cluster_kind, self.namespaced_kind):
            if named.lower() in (kind.singular, kind.plural):
                return kind
        return None

    def inferred(self, labels: Mapping[str, str]) -> Document | None:
        """Return the reference that labels imply, if any."""
        if not (name := labels.get(self.name_label)):
            return None
        kind = labels.get(self.kind_label)
        return {"name": name, "kind": kind or self.cluster_kind.name}


INSTANCETYPE: Final = Matcher(
    "instancetype",
    _VIEWS[VirtualMachineClusterInstancetype],
    _VIEWS[VirtualMachineInstancetype],
)
PREFERENCE: Final = Matcher(
    "preference", _VIEWS[VirtualMachineClusterPreference], _VIEWS[VirtualMachinePreference]
)
MATCHERS: Final = (INSTANCETYPE, PREFERENCE)
