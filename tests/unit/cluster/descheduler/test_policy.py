import pytest

from corral.api.yaml import dump
from corral.cluster.descheduler.arguments import (
    CLAIMS,
    DAEMON_SETS,
    FAILED_BARE,
    LOCAL_STORAGE,
    SYSTEM_CRITICAL,
)
from corral.cluster.descheduler.policy import InvalidPolicy, parse

DESCHEDULERS_OWN = """
apiVersion: "descheduler/v1alpha2"
kind: "DeschedulerPolicy"
profiles:
  - name: ProfileName
    pluginConfig:
    - name: "DefaultEvictor"
    - name: "RemovePodsViolatingInterPodAntiAffinity"
    - name: "RemoveDuplicates"
    - name: "LowNodeUtilization"
      args:
        thresholds:
          "cpu" : 20
          "memory": 20
          "pods": 20
        targetThresholds:
          "cpu" : 50
          "memory": 50
          "pods": 50
    plugins:
      balance:
        enabled:
          - "LowNodeUtilization"
          - "RemoveDuplicates"
      deschedule:
        enabled:
          - "RemovePodsViolatingInterPodAntiAffinity"
"""
"""kubernetes/base/configmap.yaml of the descheduler."""
TOP = """
apiVersion: "descheduler/v1alpha2"
kind: "DeschedulerPolicy"
nodeSelector: "node=node1"
maxNoOfPodsToEvictPerNode: 5000
maxNoOfPodsToEvictPerNamespace: 400
maxNoOfPodsToEvictTotal: 30
gracePeriodSeconds: 60
profiles:
  - name: ProfileName
    pluginConfig:
    - name: "DefaultEvictor"
      args:
        podProtections:
          defaultDisabled:
            #- "PodsWithLocalStorage"
          extraEnabled:
            - PodsWithPVC
          config:
            PodsWithPVC:
              protectedStorageClasses:
              - name: storage-class-0
        nodeFit: true
        minReplicas: 2
        minPodAge: 1h
    plugins:
      preEvictionFilter:
        enabled: ["DefaultEvictor"]
"""
"""The example of the descheduler's README."""


def test_the_policy_in_the_deschedulers_repository_is_carried_out():
    policy = parse(DESCHEDULERS_OWN)
    [profile] = policy.profiles
    assert [each.name for each in profile.balance] == ["LowNodeUtilization", "RemoveDuplicates"]
    assert profile.deschedule == ()
    [ignored] = policy.ignored
    assert "RemovePodsViolatingInterPodAntiAffinity" in ignored


def test_top_level_fields_and_evictor_are_read():
    policy = parse(TOP)
    assert (policy.per_node, policy.per_namespace, policy.total) == (5000, 400, 30)
    assert policy.grace_seconds == 60
    assert policy.node_selector.matches({"node": "node1"})
    evictor = policy.profiles[0].evictor
    assert evictor.node_fit
    assert evictor.min_pod_age_seconds == 3600
    assert evictor.protections == {
        *(LOCAL_STORAGE, DAEMON_SETS, SYSTEM_CRITICAL, FAILED_BARE),
        CLAIMS,
    }


def document(plugin="LowNodeUtilization", args=None, point="balance", **top):
    config = {"name": plugin, "args": args} if args is not None else {"name": plugin}
    profile = {"name": "p", "pluginConfig": [config], "plugins": {point: {"enabled": [plugin]}}}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [profile],
        **top,
    }


LOW = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"kind": "ConfigMap"}, "apiVersion and kind: must be descheduler/v1alpha2"),
        (document(apiVersion="descheduler/v1alpha1"), "apiVersion and kind"),
        (document(profiles=[]), "profiles: must have a profile"),
        (document(maxPodsPerNode=3), "unknown field `maxPodsPerNode`"),
        (document(maxNoOfPodsToEvictPerNode=-1), "maxNoOfPodsToEvictPerNode: must not be negative"),
        (document(maxNoOfPodsToEvictTotal="many"), "maxNoOfPodsToEvictTotal: Expected `int"),
        (document(nodeSelector="a in b"), "nodeSelector: "),
        (document("Balance", {}), 'pluginConfig[0].name: "Balance" is no plugin'),
        (
            document("RemoveDuplicates", {}, "deschedule"),
            'plugins.deschedule.enabled: "RemoveDuplicates" is no plugin of this extension point',
        ),
        (document("LowNodeUtilization", {}), "args.thresholds: must have a resource"),
        (
            document(args={**LOW, "limits": {}}),
            "profiles[0].pluginConfig[0].args: Object contains unknown field `limits`",
        ),
        (document(args={**LOW, "thresholds": {"cpu": 60}}), "must not be greater"),
        (document(args={**LOW, "thresholds": {"cpu": 120}}), "thresholds.cpu: must be a percent"),
        (document(args={**LOW, "thresholds": {"pods": 10}}), "must have the same resources"),
        (document(args={**LOW, "metricsUtilization": {"metricsServer": True}}), "corral compares"),
        (
            document("RemovePodsViolatingNodeAffinity", {}, "deschedule"),
            "args.nodeAffinityType: must have one or both",
        ),
        (
            document("RemovePodsViolatingNodeTaints", {"includedTaints": ["a"],
                     "excludedTaints": ["b"]}, "deschedule"),
            "includedTaints: only one of",
        ),
        (document("PodLifeTime", {}, "deschedule"), "maxPodLifeTimeSeconds: this, states"),
        (document("PodLifeTime", {"states": ["Tired"]}, "deschedule"), 'states: "Tired" is none'),
        (
            document("RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["Never"]}),
            'constraints: "Never" is none of DoNotSchedule, ScheduleAnyway',
        ),
    ],
)  # fmt: skip
def test_faults_name_the_field(policy, message):
    with pytest.raises(InvalidPolicy) as refused:
        parse(dump(policy))
    assert message in str(refused.value)


EVICTOR_FAULTS = [
    ({"priorityThreshold": {"name": "a", "value": 3}}, "priorityThreshold: only one"),
    ({"noEvictionPolicy": "Maybe"}, 'noEvictionPolicy: "Maybe" is none of Preferred, Mandatory'),
    ({"minPodAge": "old"}, "minPodAge: 'old' is no duration"),
    ({"podProtections": {"extraEnabled": ["Pods"]}}, 'extraEnabled: "Pods" is none of'),
    ({"podProtections": {"extraEnabled": [CLAIMS, CLAIMS]}}, "a name is there twice"),
    ({"ignorePvcPods": True, "podProtections": {"extraEnabled": [CLAIMS]}}, "not beside evict"),
    ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "labelSelector: "),
    ({"nodefit": True}, "unknown field `nodefit`"),
]


@pytest.mark.parametrize(("args", "message"), EVICTOR_FAULTS)
def test_faults_of_the_evictor_name_the_field(args, message):
    policy = document(args=LOW)
    policy["profiles"][0]["pluginConfig"].append({"name": "DefaultEvictor", "args": args})
    with pytest.raises(InvalidPolicy, match=r"pluginConfig\[1\]\.args") as refused:
        parse(dump(policy))
    assert message in str(refused.value)


def test_an_enabled_plugin_needs_an_entry_in_plugin_config():
    policy = document(args=LOW)
    policy["profiles"][0]["pluginConfig"] = []
    with pytest.raises(InvalidPolicy, match='add "name: LowNodeUtilization"'):
        parse(dump(policy))


def test_all_faults_are_reported_together():
    policy = document(args={}, maxNoOfPodsToEvictTotal=-1)
    with pytest.raises(InvalidPolicy) as refused:
        parse(dump(policy))
    assert "maxNoOfPodsToEvictTotal" in str(refused.value)
    assert "thresholds" in str(refused.value)


def test_text_that_is_no_yaml_is_refused():
    with pytest.raises(InvalidPolicy, match="yaml"):
        parse("profiles: [")


@pytest.mark.parametrize("plugin", ["RemoveFailedPods", "RemovePodsHavingTooManyRestarts"])
def test_plugins_without_effect_are_named(plugin):
    [text] = parse(dump(document(plugin, {"anything": 1}, "deschedule"))).ignored
    assert text.startswith(f"profiles[0].plugins.deschedule.enabled: {plugin}: ")
