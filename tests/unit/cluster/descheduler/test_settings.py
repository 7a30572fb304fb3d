from pathlib import Path

import msgspec
import pytest
from lightkube.models.core_v1 import ConfigMap
from tests.unit.cluster.descheduler.test_policy import DESCHEDULERS_OWN

from corral.api.yaml import load
from corral.cluster.descheduler.policy import InvalidPolicy
from corral.cluster.descheduler.settings import DRY_RUN, INTERVAL, read


def config_map(data=None, **annotations):
    metadata = {"name": "descheduler-policy-configmap", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "data": data}, ConfigMap)


POLICY = {"policy.yaml": DESCHEDULERS_OWN}


def test_defaults_are_those_of_the_deschedulers_deployment():
    settings = read(config_map(POLICY))
    assert settings.interval_seconds == 300
    assert not settings.dry_run


def test_annotations_set_interval_and_dry_run():
    settings = read(config_map(POLICY, **{INTERVAL: "1m30s", DRY_RUN: "true"}))
    assert settings.interval_seconds == 90
    assert settings.dry_run


@pytest.mark.parametrize(
    ("data", "annotations", "message"),
    [
        ({}, {}, "data: has no policy.yaml"),
        ({"policy.yaml": "a: 1"}, {}, "policy.yaml: apiVersion and kind"),
        (POLICY, {INTERVAL: "often"}, "annotations[corral.dev/descheduling-interval]: 'often' is"),
        (POLICY, {INTERVAL: "0s"}, "must be a second at least"),
        (POLICY, {DRY_RUN: "yes"}, 'annotations[corral.dev/descheduling-dry-run]: must be "true"'),
    ],
)
def test_faults_name_the_field(data, annotations, message):
    with pytest.raises(InvalidPolicy) as refused:
        read(config_map(data, **annotations))
    assert message in str(refused.value)


def test_the_config_map_of_the_guide_is_valid():
    guide = Path(__file__).parents[4] / "docs/guide/rebalancing.md"
    text = guide.read_text().partition("```yaml\n")[2].partition("```")[0]
    settings = read(msgspec.convert(load(text), ConfigMap))
    [profile] = settings.policy.profiles
    assert (settings.interval_seconds, settings.dry_run) == (300, True)
    assert [each.name for each in profile.balance] == ["LowNodeUtilization"]
    assert settings.policy.ignored == ()
