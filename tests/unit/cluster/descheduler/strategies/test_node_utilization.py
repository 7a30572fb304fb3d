import pytest
from tests.unit.cluster.descheduler.clusters import World, node, sizes, vmi

LOW = {
    "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
    "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50},
}
"""The example of the descheduler's documentation."""


def three(*counts, **more):
    world = World(node("n1"), node("n2"), node("n3"))
    for name, count in zip(("n1", "n2", "n3"), counts, strict=True):
        world.fill(name, count, **more)
    return world


@pytest.mark.parametrize(
    ("counts", "args", "evicted", "after"),
    [
        ((8, 0, 0), {}, 3, {"n1": 5, "n2": 2, "n3": 1}),
        ((8, 3, 0), {}, 3, {"n1": 5, "n2": 3, "n3": 3}),  # n2 is neither under nor over
        ((5, 0, 0), {}, 0, {"n1": 5, "n2": 0, "n3": 0}),  # at the target, not above
        ((8, 3, 3), {}, 0, {"n1": 8, "n2": 3, "n3": 3}),  # no node is underutilized
        ((2, 2, 2), {}, 0, {"n1": 2, "n2": 2, "n3": 2}),  # all are
        ((8, 0, 0), {"numberOfNodes": 1}, 3, {"n1": 5, "n2": 2, "n3": 1}),
        ((8, 0, 0), {"numberOfNodes": 2}, 0, {"n1": 8, "n2": 0, "n3": 0}),
        ((8, 0, 0), {"evictionLimits": {"node": 2}}, 2, {"n1": 6, "n2": 1, "n3": 1}),
        (
            (8, 0, 0),
            {"evictableNamespaces": {"exclude": ["default"]}},
            0,
            {"n1": 8, "n2": 0, "n3": 0},
        ),
        ((10, 9, 0), {}, 5, {"n1": 5, "n2": 9, "n3": 5}),
    ],
)
def test_overutilized_nodes_come_down_to_their_target(counts, args, evicted, after):
    names, snapshot = three(*counts).evicted("LowNodeUtilization", {**LOW, **args})
    assert len(names) == evicted
    assert sorted(sizes(snapshot).values()) == sorted(after.values())


@pytest.mark.parametrize("counts", [(8, 0, 0), (10, 9, 0), (10, 1, 1), (9, 2, 0), (7, 7, 0)])
def test_a_second_cycle_evicts_nothing(counts):
    world = three(*counts)
    names, snapshot = world.evicted("LowNodeUtilization", LOW)
    assert names
    later = World(*world.nodes)
    for name in snapshot.names():
        for one in snapshot.pods_on(name):
            later.add(one.key.name, name)
    assert later.evicted("LowNodeUtilization", LOW)[0] == []


def test_deviations_are_counted_from_the_mean():
    args = {
        "thresholds": {"pods": 10},
        "targetThresholds": {"pods": 10},
        "useDeviationThresholds": True,
    }
    names, snapshot = three(8, 2, 2).evicted("LowNodeUtilization", args)  # the mean is 40 %
    assert len(names) == 3
    assert sorted(sizes(snapshot).values()) == [3, 4, 5]


def test_a_cordoned_node_is_not_underutilized():
    world = World(node("n1"), node("n2", unschedulable=True), node("n3"))
    world.fill("n1", 8)
    world.fill("n3", 3)
    assert world.evicted("LowNodeUtilization", LOW)[0] == []


def test_pods_go_by_priority_and_quality_of_service():
    world = World(node("n1"), node("n2"))
    world.add("a-high", "n1", spec={"priority": 100})
    world.add("b-guaranteed", "n1", status={"phase": "Running", "qosClass": "Guaranteed"})
    world.add("c-burstable", "n1")
    world.add("d-low", "n1", spec={"priority": -1})
    args = {"thresholds": {"pods": 1}, "targetThresholds": {"pods": 1}}
    world.nodes[1] = node("n2", pods="1000")
    names, _ = world.evicted("LowNodeUtilization", args)
    assert names == ["d-low", "c-burstable", "b-guaranteed"]  # the last one would come back


def test_a_refused_eviction_is_followed_by_that_of_another_pod():
    names, _ = three(8, 0, 0).evicted("LowNodeUtilization", LOW, refuse={"n1-0", "n1-2"})
    assert names == ["n1-1", "n1-3", "n1-4"]


def test_a_pod_that_would_come_back_stays():
    world = three(6, 0, 0)
    world.nodes = [node("n1", memory="30Gi", cpu="400"), node("n2", cpu="1", memory="256Mi")]
    args = {"thresholds": {"pods": 50}, "targetThresholds": {"pods": 55}}
    assert world.evicted("LowNodeUtilization", args)[0] == []  # the scheduler prefers n1
    for name in world.vmis:
        world.vmis[name] = vmi(name, strategy="LiveMigrate")
    assert len(world.evicted("LowNodeUtilization", args)[0]) == 1  # a migration does not


def test_a_pod_whose_volume_is_on_its_node_stays():
    world = three(8, 0, 0)
    world.volumes = dict.fromkeys(world.vmis, "n1")
    assert world.evicted("LowNodeUtilization", LOW)[0] == []


HIGH = {"thresholds": {"cpu": 20, "memory": 20, "pods": 20}}


def test_vmis_that_migrate_leave_underutilized_nodes():
    world = three(1, 6, 5)
    world.vmis = {name: vmi(name, strategy="LiveMigrate") for name in world.vmis}
    names, snapshot = world.evicted("HighNodeUtilization", HIGH)
    assert names == ["n1-0"]
    assert sizes(snapshot)["n1"] == 0


def test_underutilized_nodes_are_emptied_into_fuller_ones_only():
    world = three(1, 2, 6)
    world.vmis = {name: vmi(name, strategy="LiveMigrate") for name in world.vmis}
    names, snapshot = world.evicted("HighNodeUtilization", HIGH)
    assert names[0] == "n1-0"
    assert sizes(snapshot)["n1"] == 0


@pytest.mark.parametrize("counts", [(1, 1, 1), (6, 6, 6), (1, 6, 5)])
def test_replaced_vmis_stay_where_the_scheduler_puts_them_on_the_emptiest_node(counts):
    assert three(*counts).evicted("HighNodeUtilization", HIGH)[0] == []


def test_only_pods_that_request_a_resource_go_where_the_mode_says_so():
    world = three(0, 6, 5)
    world.nodes[0] = node("n1", unschedulable=True)
    world.add("with", "n1", cpu="100m")
    world.add("without", "n1", cpu="0")
    args = {"thresholds": {"cpu": 20}, "evictionModes": ["OnlyThresholdingResources"]}
    assert world.evicted("HighNodeUtilization", args)[0] == ["with"]
