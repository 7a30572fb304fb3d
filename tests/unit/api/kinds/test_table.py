"""The table of kinds: what is served, and how it is found."""

import itertools
from dataclasses import replace

import msgspec
import pytest

from corral.api.errors import Cause
from corral.api.kind import GroupVersion, Version
from corral.api.kinds import KINDS, KindTable, kind_of
from corral.api.kinds.kubevirt.kinds import REPLICA_SET, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

NOW = "2026-01-31T12:00:00Z"


@pytest.mark.parametrize("version", ["v1", "v1alpha3", "v1alpha2"])
def test_kinds_are_found_in_every_version_they_are_served_in(version):
    found = KINDS.find("kubevirt.io", version, "virtualmachineinstancereplicasets")
    assert found is REPLICA_SET


@pytest.mark.parametrize(
    "path",
    [
        ("kubevirt.io", "v2", "virtualmachineinstances"),
        ("", "v1", "virtualmachineinstances"),
        ("kubevirt.io", "v1", "vmi"),
    ],
)
def test_versions_that_are_not_served_are_not_found(path):
    assert KINDS.find(*path) is None


def test_kinds_are_found_by_their_name_and_by_their_view():
    assert KINDS.by_kind("kubevirt.io", "VirtualMachineInstance") is VIRTUAL_MACHINE_INSTANCE
    assert KINDS.by_kind("", "VirtualMachineInstance") is None
    assert kind_of(VirtualMachineInstance) is VIRTUAL_MACHINE_INSTANCE
    with pytest.raises(KeyError):
        kind_of(msgspec.Struct)


def test_served_versions_are_listed_by_preference():
    served = KINDS.group_versions()
    assert served[0] == GroupVersion("", "v1")
    assert [each.version for each in served if each.group == "kubevirt.io"] == [
        "v1",
        "v1alpha3",
        "v1alpha2",
    ]
    groups = [each.group for each in served]
    together = [group for group, _ in itertools.groupby(groups)]
    assert len(together) == len(set(groups)), "the versions of a group are listed together"
    assert KINDS.served(GroupVersion("kubevirt.io", "v1alpha2")) == (
        VIRTUAL_MACHINE_INSTANCE,
        REPLICA_SET,
    )


def test_a_kind_can_be_added_and_replaced_later():
    table = KindTable([REPLICA_SET])
    table.add(VIRTUAL_MACHINE_INSTANCE)
    assert list(table) == [REPLICA_SET, VIRTUAL_MACHINE_INSTANCE]
    newer = replace(REPLICA_SET, versions=(Version(name="v2"),))
    table.add(newer)
    assert len(table) == 2
    assert table.find("kubevirt.io", "v1", newer.plural) is None
    assert table.find("kubevirt.io", "v2", newer.plural) is newer


@pytest.mark.parametrize("kind", tuple(KINDS), ids=repr)
def test_every_kind_is_described_in_full(kind):
    assert kind.plural == kind.plural.lower()
    assert kind.singular == kind.name.lower()
    assert kind.versions[0].name in ("v1", "v1beta1", "v1alpha1", "v2")
    assert kind.columns
    assert all(column.description or column.priority for column in kind.columns)
    for column in kind.columns:
        column.cell({"metadata": {"name": "x"}})  # an object without anything is printed too


@pytest.mark.parametrize("kind", tuple(KINDS), ids=repr)
def test_no_two_kinds_share_a_short_name_in_a_group(kind):
    kept = [other for other in KINDS if other is not kind and other.measured_kind is None]
    others = {name for other in kept for name in (*other.short, other.plural)}
    if kind.plural != "events" and kind.measured_kind is None:
        assert not others & {*kind.short, kind.singular, kind.plural}


def test_tables_of_replica_sets_are_kubevirts():
    names = [column.name.upper() for column in REPLICA_SET.columns]
    assert names == ["DESIRED", "CURRENT", "READY", "AGE"]
    document = {
        "metadata": {"creationTimestamp": NOW},
        "spec": {"replicas": 3},
        "status": {"replicas": 2},
    }
    assert [column.cell(document) for column in REPLICA_SET.columns] == [3, 2, None, NOW]
    document["status"] = {"replicas": 0, "readyReplicas": 0}  # KubeVirt says nothing of zeros
    assert [column.cell(document) for column in REPLICA_SET.columns] == [3, None, None, NOW]
    assert REPLICA_SET.scale is not None
    assert REPLICA_SET.short == ("vmirs", "vmirss")
    assert REPLICA_SET.categories == ("all",)


def test_tables_of_vmis_are_kubevirts():
    columns = VIRTUAL_MACHINE_INSTANCE.columns
    assert [column.name.upper() for column in columns if not column.priority] == [
        "AGE",
        "PHASE",
        "IP",
        "NODENAME",
        "READY",
    ]
    assert [column.name.upper() for column in columns if column.priority] == [
        "LIVE-MIGRATABLE",
        "PAUSED",
    ]
    document = {
        "metadata": {"creationTimestamp": NOW},
        "status": {
            "phase": "Running",
            "nodeName": "corral",
            "interfaces": [{"ipAddress": "10.0.0.9"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    cells = [column.cell(document) for column in columns]
    assert cells == [NOW, "Running", "10.0.0.9", "corral", "True", None, None]


def test_vmis_have_no_status_subresource():
    assert not VIRTUAL_MACHINE_INSTANCE.status
    assert REPLICA_SET.status


def test_rejections_of_native_kinds_list_the_causes():
    kind = KINDS.by_kind("", "Pod")
    assert kind is not None
    causes = [Cause("spec.containers", "Required value", "FieldValueRequired")]
    assert kind.invalid("a", causes).message == (
        'Pod "a" is invalid: spec.containers: Required value'
    )
    both = kind.denied("a", [*causes, Cause("spec", "Forbidden: no")], creating=True)
    assert both.message == (
        'Pod "a" is invalid: [spec.containers: Required value, spec: Forbidden: no]'
    )
