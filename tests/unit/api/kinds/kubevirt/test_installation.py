"""The settings of the KubeVirt object: which have an effect, and which are refused."""

import msgspec
import pytest

from corral.api.kinds.kubevirt.installation import (
    KUBEVIRT_KIND,
    KubeVirt,
    eviction_strategy,
    live_updates,
    update_strategy,
)


def document(spec):
    return {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "spec": spec}


def kubevirt(spec):
    return msgspec.convert(document(spec), KubeVirt)


def verdict(spec, old=None):
    assert KUBEVIRT_KIND.validate is not None
    before = document(old) if old is not None else None
    return KUBEVIRT_KIND.validate(document(spec), before, "user")


EFFECTIVE = {
    "configuration": {
        "evictionStrategy": "LiveMigrate",
        "vmRolloutStrategy": "LiveUpdate",
        "liveUpdateConfiguration": {"maxHotplugRatio": 2, "maxCpuSockets": 8, "maxGuest": "8Gi"},
    },
    "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"], "batchEvictionSize": 1},
}


def test_settings_with_an_effect_get_no_warning():
    assert verdict(EFFECTIVE).causes == []
    assert verdict(EFFECTIVE).warnings == []


def test_others_do():
    spec = {"workloadUpdateStrategy": {"speed": 1}, "configuration": {"machineType": "q35"}}
    assert verdict(spec).warnings == [
        "spec.workloadUpdateStrategy.speed has no effect in this version",
        "spec.configuration.machineType has no effect in this version",
    ]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"configuration": {"evictionStrategy": "Move"}},
            "spec.configuration.evictionStrategy",
            'Unsupported value: "Move": supported values: "None", "LiveMigrate"',
        ),
        (
            {"workloadUpdateStrategy": {"batchEvictionInterval": "x"}},
            "spec.workloadUpdateStrategy",
            "batchEvictionInterval: 'x' is no duration",
        ),
        (
            {"configuration": {"vmRolloutStrategy": "Now"}},
            "spec.configuration.vmRolloutStrategy",
            'Unsupported value: "Now": supported values: "Stage", "LiveUpdate"',
        ),
        (
            {"configuration": {"liveUpdateConfiguration": {"maxHotplugRatio": -1}}},
            "spec.configuration.liveUpdateConfiguration",
            "maxHotplugRatio: -1 is less than 0",
        ),
        (
            {"configuration": {"instancetype": {"referencePolicy": "keep"}}},
            "spec.configuration.instancetype.referencePolicy",
            'Unsupported value: "keep"',
        ),
        (
            {"configuration": {"migrations": {"progressTimeout": -1}}},
            "spec.configuration.migrations",
            "progressTimeout: -1 is less than 0",
        ),
    ],
)
def test_an_invalid_setting_is_refused_and_named(spec, field, message):
    (cause,) = verdict(spec).causes
    assert cause.field == field
    assert message in cause.message
    assert verdict(spec, spec).causes == [], "an earlier version has stored it"


def test_live_updates_are_the_default():
    assert live_updates(None).max_hotplug_ratio == 4
    assert live_updates(kubevirt(EFFECTIVE)).max_hotplug_ratio == 2
    assert live_updates(kubevirt({"configuration": {"vmRolloutStrategy": "Stage"}})) is None
    invalid = {"configuration": {"liveUpdateConfiguration": {"maxHotplugRatio": "x"}}}
    assert live_updates(kubevirt(invalid)).max_hotplug_ratio == 4


def test_strategies_are_read():
    assert eviction_strategy(None) is None
    assert eviction_strategy(kubevirt({})) is None
    assert eviction_strategy(kubevirt(EFFECTIVE)) == "LiveMigrate"
    assert eviction_strategy(kubevirt({"configuration": {"evictionStrategy": "Move"}})) is None
    assert update_strategy(kubevirt(EFFECTIVE)).migrates
    assert not update_strategy(None).migrates
    assert not update_strategy(
        kubevirt({"workloadUpdateStrategy": {"batchEvictionSize": "x"}})
    ).evicts
