"""``corral upgrade machines``: what it lists, and what it says of machines that stay."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from tests.unit.controllers.make import make_vmi

from corral.api.kinds.vmi.launcher import NODE_LAUNCHER, launcher
from corral.api.object import OwnerReference
from corral.cli.manager.upgrade import listing, obstacle

MOVES = [{"type": "LiveMigratable", "status": "True"}]
TIED = [{"type": "LiveMigratable", "status": "False", "message": "cannot migrate VMI: a disk"}]


def node(name, *, ready="True", cordoned=False):
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": {NODE_LAUNCHER: launcher("QEMU 8")}},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def vmi(name="a", conditions=MOVES, owner="", **fields):
    made = make_vmi(name=name, node="one", conditions=conditions, **fields)
    made.status.launcher_container_image_version = launcher("QEMU 7")
    if owner:
        reference = OwnerReference(
            api_version="kubevirt.io/v1", kind=owner, name="x", uid="x", controller=True
        )
        made.metadata.owner_references = [reference]
    return made


ONE, TWO = node("one"), node("two")


@pytest.mark.parametrize(
    ("machine", "nodes", "why"),
    [
        (vmi(), [ONE, TWO], ""),
        (vmi(conditions=TIED), [ONE, TWO], "cannot migrate VMI: a disk"),
        (vmi(conditions=[]), [ONE, TWO], "it is not known yet whether it can move"),
        (vmi(phase="Scheduled"), [ONE, TWO], "its phase is Scheduled"),
        (vmi(), [ONE], "no other node is ready, and not cordoned"),
        (vmi(), [ONE, node("two", ready="Unknown")], "no other node is ready, and not cordoned"),
        (vmi(), [ONE, node("two", cordoned=True)], "no other node is ready, and not cordoned"),
    ],
)
def test_an_obstacle_is_named(machine, nodes, why):
    assert obstacle(machine, nodes) == why


def lines(*machines):
    nodes = {"one": ONE, "two": TWO}
    obstacles = {each.key: obstacle(each, nodes.values()) for each in machines}
    return "\n".join(listing(machines, nodes, obstacles)).splitlines()


def test_outdated_machines_are_listed_with_the_reason():
    header, first, second, *rest = lines(vmi("a"), vmi("longer", TIED))
    assert header.split() == ["NAMESPACE", "NAME", "NODE", "MOVES", "WHY"]
    assert first.split(maxsplit=4) == [
        *("default", "a", "one", "yes"),
        "it runs in QEMU 7, its node starts QEMU 8",
    ]
    assert second.split()[:4] == ["default", "longer", "one", "no"]
    assert len(rest) == 1


@pytest.mark.parametrize(
    ("owner", "remedy"),
    [
        ("VirtualMachine", "corral restart a -n default renews it."),
        (
            "VirtualMachineInstanceReplicaSet",
            "kubectl delete vmi a -n default ends it; its set starts another.",
        ),
        ("", "kubectl delete vmi a -n default ends it; create it again."),
    ],
)
def test_a_machine_that_stays_comes_with_a_remedy(owner, remedy):
    *_, last = lines(vmi("a", TIED, owner=owner))
    assert last == f"default/a stays: cannot migrate VMI: a disk. {remedy}"
