from collections import Counter

import pytest
from tests.unit.cluster.descheduler.clusters import SET, World, node, sizes, vmi

from corral.api import node_fit
from corral.api.kinds.vmi.derived import MIGRATION_UID

GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def two():
    return World(node("n1"), node("n2"))


def test_requests_of_running_pods_count_on_their_node():
    world = two()
    world.fill("n1", 3)
    world.add("over", "n1", status={"phase": "Succeeded"})
    snapshot = world.snapshot()
    assert snapshot.used("n1")["cpu"] == 1_200_000_000
    assert sizes(snapshot) == {"n1": 3, "n2": 0}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"of": vmi("a", strategy="LiveMigrate", evacuates="n1")}, {"n1": 0, "n2": 1}),
        ({"metadata": GONE}, {"n1": 0, "n2": 1}),  # its set replaces it
        ({"metadata": GONE, "owner": None}, {"n1": 0, "n2": 0}),
        ({"spec": {"nodeName": None}}, {"n1": 0, "n2": 1}),
    ],
)
def test_a_vmi_that_leaves_counts_where_it_will_be(more, expected):
    world = two()
    world.add("heavy", "n1", cpu="3")
    world.add("a", "n1", **more)
    snapshot = world.snapshot()
    found = {name: size - (name == "n1") for name, size in sizes(snapshot).items()}
    assert found == expected
    assert not any(one.stays for one in snapshot.pods() if one.key.name == "a")


def test_a_vmi_that_migrates_counts_once_at_its_target():
    world = two()
    machine = vmi("a", strategy="LiveMigrate", evacuates="n1")
    world.add("a", "n1", of=machine)
    world.add("target", "n2", of=machine, metadata={"labels": {MIGRATION_UID: "1"}})
    snapshot = world.snapshot()
    assert sizes(snapshot) == {"n1": 0, "n2": 1}
    [one] = snapshot.pods()
    assert not one.stays


@pytest.mark.parametrize("strategy", ["LiveMigrate", ""])  # a user may migrate any VMI
def test_a_vmi_whose_target_pod_is_pending_counts_where_that_will_be(strategy):
    world = two()
    world.add("heavy", "n2", cpu="3")
    machine = vmi("a", strategy=strategy, node="n1")
    world.add("a", "n1", of=machine)
    world.add("target", "", of=machine, metadata={"labels": {MIGRATION_UID: "1"}})
    snapshot = world.snapshot()
    assert sizes(snapshot) == {"n1": 0, "n2": 2}


def test_a_vmi_whose_target_pod_is_being_deleted_counts_at_its_source():
    world = two()
    machine = vmi("a", strategy="LiveMigrate", node="n1")
    world.add("a", "n1", of=machine)
    world.add("target", "n2", of=machine, metadata={"labels": {MIGRATION_UID: "1"}, **GONE})
    snapshot = world.snapshot()
    assert sizes(snapshot) == {"n1": 1, "n2": 0}
    [one] = snapshot.pods()
    assert not one.stays


def test_an_evicted_pod_counts_where_the_scheduler_will_put_it():
    world = two()
    world.fill("n1", 2)
    snapshot = world.snapshot()
    first, _ = snapshot.pods_on("n1")
    assert snapshot.next_node(first) == "n2"
    snapshot.evict(first)
    assert sizes(snapshot) == {"n1": 1, "n2": 1}
    assert snapshot.used("n2")["cpu"] == 400_000_000
    assert not first.stays


def test_a_migration_does_not_lead_back():
    world = two()
    world.nodes[1] = node("n2", cpu="500m", memory="128Mi")
    world.add("a", "n1")
    world.add("b", "n1", of=vmi("b", strategy="LiveMigrate"))
    snapshot = world.snapshot()
    replaced, moved = snapshot.pods_on("n1")
    assert snapshot.next_node(replaced) == "n1"
    assert snapshot.next_node(moved) == "n2"


def test_conditions_of_a_past_migration_do_not_bind_the_next_pod():
    others = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [others]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    world = two()
    world.add("a", "n2", of=vmi("a", strategy="LiveMigrate"), spec={"affinity": affinity})
    snapshot = world.snapshot()
    [one] = snapshot.pods_on("n2")
    assert snapshot.next_node(one) == "n1"


def test_nothing_lands_on_a_cordoned_node_or_beside_its_volume():
    world = World(node("n1"), node("n2", unschedulable=True), node("n3"))
    world.add("a", "n1", of=vmi("a", strategy="LiveMigrate"), owner=SET)
    snapshot = world.snapshot()
    [one] = snapshot.pods_on("n1")
    assert snapshot.next_node(one) == "n3"
    assert snapshot.fits_elsewhere(one, ["n2", "n3"])
    world.volumes["a"] = "n1"
    assert snapshot.next_node(one) == ""
    assert not snapshot.fits_elsewhere(one, ["n2", "n3"])


def test_pods_that_are_alike_are_checked_once_for_each_node(monkeypatch):
    checked = Counter()
    unfit_reasons = node_fit.unfit_reasons

    def counted(pod, info, requested):
        checked[info.name] += 1
        return unfit_reasons(pod, info, requested)

    monkeypatch.setattr(node_fit, "unfit_reasons", counted)
    world = World(node("n1"), node("n2"), node("n3"))
    for number in range(6):
        world.add(f"p{number}", "n1", of=vmi(f"p{number}", strategy="LiveMigrate"))
    world.volumes["p3"] = "n2"  # a pod's volumes do not count as a difference
    snapshot = world.snapshot()
    places = [snapshot.next_node(one) for one in snapshot.pods_on("n1")]
    assert places == ["n3", "n3", "n3", "n2", "n3", "n3"]
    assert checked == {"n2": 1, "n3": 1}


def test_pods_go_where_the_scheduler_puts_them_after_each_eviction():
    world = World(node("n1"), node("n2", cpu="3"), node("n3", memory="2Gi"))
    world.fill("n1", 4)
    world.fill("n1", 4, "big", cpu="300m", memory="256Mi")
    snapshot = world.snapshot()
    for one in snapshot.pods_on("n1"):
        others = [each for each in snapshot.pods() if each is not one]
        infos = [node_fit.NodeInfo(each) for each in world.nodes]
        for info in infos:
            for each in others:
                if each.node == info.name:
                    info.used.update(each.requested)
        assert snapshot.next_node(one) == node_fit.choose(one.next_pod, infos).node
        snapshot.evict(one)
    assert sum(sizes(snapshot).values()) == 8
    assert min(sizes(snapshot).values()) > 0


def test_observing_stops_between_pods():
    world = two()
    world.fill("n1", 3)
    snapshot = world.snapshot()
    turns = list(snapshot.observe(world.pods))
    assert len(turns) >= 2 * len(world.pods)
