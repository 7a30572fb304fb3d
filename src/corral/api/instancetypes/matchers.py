"""What a VirtualMachine refers to: which instance type, which preference, or a volume to ask.

Two fields refer: ``spec.instancetype`` and ``spec.preference``; everything is the same for both.
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
    """One of the two fields that refer.

    field: its name in a VirtualMachine's spec.
    of_cluster, of_namespace: the kinds that it may name.
    name_label, kind_label: labels of a volume by which it says what suits it.
    """

    field: str
    of_cluster: Kind
    of_namespace: Kind

    @property
    def status_field(self) -> str:
        """Where the status of a VirtualMachine tells what is in use."""
        return f"{self.field}Ref"

    @property
    def name_label(self) -> str:
        return f"instancetype.kubevirt.io/default-{self.field}"

    @property
    def kind_label(self) -> str:
        return f"{self.name_label}-kind"

    def kind(self, named: str) -> Kind | None:
        """The kind that a reference names, in the spellings that KubeVirt takes."""
        if not named:
            return self.of_cluster
        for kind in (self.of_cluster, self.of_namespace):
            if named.lower() in (kind.singular, kind.plural):
                return kind
        return None

    def inferred(self, labels: Mapping[str, str]) -> Document | None:
        """The reference that labels make; None where they make none."""
        if not (name := labels.get(self.name_label)):
            return None
        kind = labels.get(self.kind_label)
        return {"name": name, "kind": kind or self.of_cluster.name}


INSTANCETYPE: Final = Matcher(
    "instancetype",
    _VIEWS[VirtualMachineClusterInstancetype],
    _VIEWS[VirtualMachineInstancetype],
)
PREFERENCE: Final = Matcher(
    "preference", _VIEWS[VirtualMachineClusterPreference], _VIEWS[VirtualMachinePreference]
)
MATCHERS: Final = (INSTANCETYPE, PREFERENCE)
