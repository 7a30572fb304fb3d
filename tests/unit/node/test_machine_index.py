"""Who is on a node, and who has what."""

from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.hotplug import ATTACHED, READY
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.machine_index import MachineIndex
from corral.node.state.facts import Facts, Migration, Plugged, Progress, State, Trouble

RUNS = Facts(state=State.RUNNING)


class Instances:
    """An informer of instances, by uid."""

    def __init__(self, *instances):
        self._instances = {one.metadata.uid: one for one in instances}

    def index(self, *_):
        pass

    def indexed(self, _name, uid):
        return [self._instances[uid]] if uid in self._instances else []


def instance(name, *volumes, plug=False):
    source = {"claimName": "data", "hotpluggable": plug}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "domain": {"devices": {"disks": [{"name": "disk", "disk": {"bus": "scsi"}}]}},
                "volumes": [{"name": "disk", "persistentVolumeClaim": source}, *volumes],
            },
        },
        VirtualMachineInstance,
    )


def index(*machines):
    """Of instances and what is known of them."""
    kept = {
        Key("default", f"pod-{vmi.metadata.name}"): SimpleNamespace(
            facts=facts, record=SimpleNamespace(uid=vmi.metadata.uid)
        )
        for vmi, facts in machines
    }
    return MachineIndex(kept, Instances(), Instances(*(vmi for vmi, _ in machines)))


@pytest.mark.parametrize(
    ("other", "facts", "has"),
    [
        (instance("other"), RUNS, True),
        (instance("other"), Facts(state=State.PREPARING), False),
        (instance("other", plug=True), RUNS, False),
        (
            instance("other", plug=True),
            Facts(state=State.RUNNING, plugs={"disk": Plugged(phase=ATTACHED)}),
            False,
        ),
        (
            instance("other", plug=True),
            Facts(state=State.RUNNING, plugs={"disk": Plugged(phase=READY)}),
            True,
        ),
    ],
)
def test_the_users_of_a_claim_are_named(other, facts, has):
    mine = instance("mine")
    users = index((mine, RUNS), (other, facts)).users(mine, "disk")
    assert users == ("the claim data is in use by other" if has else "")


def test_an_unknown_claim_has_no_users():
    mine = instance("mine")
    assert index((mine, RUNS), (instance("other"), RUNS)).users(mine, "nosuch") == ""


def test_only_those_that_have_not_started_wait_for_a_claim():
    mine, late = instance("mine"), instance("late")
    found = index((mine, RUNS), (late, Facts()), (instance("other"), RUNS)).waiting(mine)
    assert [machine.record.uid for machine in found] == ["late"]


@pytest.mark.parametrize(
    ("facts", "waits"),
    [
        (Facts(), True),
        (Facts(trouble=Trouble(reason="ErrImagePull", message="no", volume="root")), True),
        (Facts(trouble=Trouble(reason="SecretNotFound", message="no", volume="seed")), False),
        (Facts(trouble=Trouble(reason="StartFailed", message="no")), False),
        (RUNS, False),
        (Facts(state=State.ENDED), False),
    ],
)
def test_only_those_that_may_miss_an_image_wait_for_it(facts, waits):
    one = instance("one", {"name": "root", "containerDisk": {"image": "lab/disk:1"}})
    machines = index((one, facts))
    assert bool(list(machines.without("docker.io/lab/disk:1"))) == waits
    assert not list(machines.without("docker.io/lab/disk:2"))


def test_the_machine_of_a_vmi_that_came_back_is_the_one_with_its_guest():
    left, here = Key("default", "left"), Key("default", "here")
    migration = Migration(uid="m", progress=Progress.SENT)
    record = SimpleNamespace(uid="u", instance="vm")
    machines = {
        left: SimpleNamespace(facts=Facts(state=State.ENDED, migration=migration), record=record),
        here: SimpleNamespace(facts=RUNS, record=record),
    }

    class Pods(Instances):
        def indexed(self, _name, _uid):
            return [
                msgspec.convert({"metadata": {"name": key.name, "namespace": "default"}}, Pod)
                for key in machines
            ]

    found = MachineIndex(machines, Pods(), Instances())
    assert found.machine_of_instance(Key("default", "vm"), "u") is machines[here]
    del machines[here]
    assert found.machine_of_instance(Key("default", "vm"), "u") is machines[left]
