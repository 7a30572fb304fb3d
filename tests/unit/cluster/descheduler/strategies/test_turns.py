"""Plugins check one pod at a time: the process does other work in between."""

import msgspec
import pytest
from tests.unit.cluster.descheduler.clusters import World, node, vmi

from corral.cluster.descheduler.strategies import STRATEGIES

PODS = 6
CONSTRAINT = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
}
ARGUMENTS = {
    "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
    "HighNodeUtilization": {"thresholds": {"cpu": 70}},
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]
    },
    "PodLifeTime": {"maxPodLifeTimeSeconds": 60},
}
HERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
PREFERS_HERE = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 90, "preference": HERE}]
    }
}


def crowded():
    """Six migratable VMIs on a tainted node, which they prefer, and a full node beside an empty."""
    taint = {"key": "a", "effect": "NoSchedule"}
    world = World(
        node("n1", labels={"zone": "z1"}, taints=[taint]),
        node("n2", labels={"zone": "z2"}),
        node("n3", labels={"zone": "z3"}),
    )
    for number in range(PODS):
        machine = vmi(f"a{number}", strategy="LiveMigrate", affinity=PREFERS_HERE)
        labels = {"labels": {"app": "a"}}
        spec = {"topologySpreadConstraints": [CONSTRAINT]}
        world.add(f"a{number}", "n1", of=machine, metadata=labels, spec=spec)
    world.add("other", "n2", cpu="3500m", owner=None)
    return world


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("plugin", sorted(STRATEGIES))
def test_a_plugin_stops_after_each_pod(monkeypatch, plugin, refuses):
    """Whether pods are evicted or not."""
    strategy = STRATEGIES[plugin]
    arguments = msgspec.convert(ARGUMENTS.get(plugin, {}), strategy.arguments)
    handle = crowded().handle()
    steps = []
    allows, next_node = handle.evictor.allows, handle.snapshot.next_node

    def counted(name, function):
        def call(one):
            steps[-1].append(name)
            return function(one)

        return call

    monkeypatch.setattr(handle.evictor, "allows", counted("allows", allows))
    monkeypatch.setattr(handle.snapshot, "next_node", counted("next_node", next_node))
    steps.append([])
    for one in strategy.evictions(arguments, handle):
        if one is not None and not refuses:
            monkeypatch.setattr(handle.snapshot, "next_node", next_node)
            handle.snapshot.evict(one)
            monkeypatch.setattr(handle.snapshot, "next_node", counted("next_node", next_node))
        steps.append([])
    assert max(step.count("allows") for step in steps) == 1
    assert max(step.count("next_node") for step in steps) == 1
    assert sum(step.count("allows") for step in steps) >= PODS
