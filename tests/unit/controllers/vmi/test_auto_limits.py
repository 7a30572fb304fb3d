"""Limits that a quota of the namespace asks for."""

import msgspec
import pytest
from lightkube.models.core_v1 import Namespace, ResourceQuota
from tests.unit.controllers.make import make_vmi

from corral.controllers.vmi.auto_limits import NO_LIMITS, AutoLimits, auto_limits
from corral.controllers.vmi.launcher_pod import compute_resources


def quota(*names):
    return msgspec.convert({"spec": {"hard": dict.fromkeys(names, "1")}}, ResourceQuota)


def namespace(ratio):
    labels = {"alpha.kubevirt.io/auto-memory-limits-ratio": ratio}
    return msgspec.convert({"metadata": {"labels": labels}}, Namespace)


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ([], NO_LIMITS),
        ([quota("requests.cpu", "pods")], NO_LIMITS),
        ([quota("limits.cpu")], AutoLimits(cpu=True)),
        ([quota("pods"), quota("limits.memory")], AutoLimits(memory_ratio=2.0)),
    ],
)
def test_resources_limited_by_a_quota_get_limits(quotas, expected):
    assert auto_limits(quotas, None) == expected


@pytest.mark.parametrize(
    ("said", "ratio"), [("1.5", 1.5), ("", 2.0), ("much", 2.0), ("0.5", 2.0), ("nan", 2.0)]
)
def test_the_memory_limit_ratio_is_a_label_of_the_namespace(said, ratio):
    assert auto_limits([quota("limits.memory")], namespace(said)).memory_ratio == ratio


def test_limits_are_the_vcpus_and_a_multiple_of_the_memory():
    domain = {
        "cpu": {"cores": 2},
        "resources": {"requests": {"memory": "64Mi"}, "overcommitGuestOverhead": True},
    }
    auto = AutoLimits(cpu=True, memory_ratio=1.5)
    given = compute_resources(make_vmi(spec={"domain": {"devices": {}, **domain}}), auto=auto)
    assert given["limits"] == {"cpu": "2", "memory": "96Mi"}
    assert given["requests"]["cpu"] == "200m", "what is limited alone would be requested, too"
    domain["resources"]["limits"] = {"cpu": "300m", "memory": "1Gi"}
    own = make_vmi(spec={"domain": {"devices": {}, **domain}})
    assert compute_resources(own, auto=auto) == compute_resources(own)
