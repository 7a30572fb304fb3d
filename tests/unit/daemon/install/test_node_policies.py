"""What nodes may write on a Kubernetes, by the policies of an installation."""

import base64
import copy
import itertools

import pytest

from corral.api.kinds.core.node_addresses import WIREGUARD_KEY
from corral.api.kinds.vmi.user_data import USER_DATA_SECRET
from corral.daemon.install import admission
from corral.daemon.install.options import Options
from corral.server.admission.dynamic.policy_evaluation import evaluate_policy, read_policy

POLICIES = {
    each["metadata"]["name"]: read_policy(each)
    for each in admission.policies(Options())
    if each["kind"] == "ValidatingAdmissionPolicy"
}


def refusals(policy, old, new, node="n1", groups=("system:nodes",), params=None):
    """Return the messages by which a policy refuses a node's update."""
    user = {"username": f"system:node:{node}", "groups": list(groups)}
    variables = {"object": new, "oldObject": old, "params": params, "request": {"userInfo": user}}
    found = evaluate_policy(POLICIES[policy], variables, lambda *_: None)
    return [each.message for each in found]


def vmi(node="n1", **annotations):
    metadata = {"name": "source", "uid": "u1", "labels": {"kubevirt.io/nodeName": node}}
    return {"metadata": metadata | {"annotations": annotations}, "spec": {}, "status": {}}


def checkpoint(conditions=(), **status):
    shown = [{"type": each, "status": "True"} for each in conditions]
    return {
        "metadata": {"name": "base"},
        "spec": {"source": {"name": "source"}},
        "status": {"conditions": shown, **status},
    }


def test_a_node_cannot_name_the_user_data_that_it_may_read():
    changed = vmi(**{USER_DATA_SECRET: "others"})
    assert refusals(admission.POLICY, vmi(), changed) == [
        'node "n1" is not allowed to change the user data of a VMI'
    ]
    assert refusals(admission.POLICY, changed, copy.deepcopy(changed)) == []
    assert refusals(admission.POLICY, vmi(), changed, groups=()) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (checkpoint(nodeName="n2"), checkpoint(nodeName="n2", forks=1), "of another node"),
        (checkpoint(), checkpoint(nodeName="n2"), "give a checkpoint to another node"),
        (checkpoint(nodeName="n1"), checkpoint(), "give a checkpoint to another node"),
        (
            checkpoint(["Failed"], nodeName="n1"),
            checkpoint(["Ready"], nodeName="n1"),
            "repair a checkpoint that has failed",
        ),
        (
            checkpoint(["Ready"], nodeName="n1", digest="a"),
            checkpoint(["Ready"], nodeName="n1", digest="b"),
            "change status.digest of a complete checkpoint",
        ),
    ],
)
def test_a_node_writes_only_its_own_checkpoints(old, new, why):
    (refused,) = refusals(admission.CHECKPOINTS_POLICY, old, new)
    assert refused.startswith('node "n1" is not allowed to')
    assert why in refused
    assert refusals(admission.CHECKPOINTS_POLICY, old, new, groups=()) == []


BEGUN = checkpoint(nodeName="n1", sourceUID="u1")


@pytest.mark.parametrize(
    ("old", "new", "source", "why"),
    [
        (checkpoint(), BEGUN, vmi(node="n2"), "begin a checkpoint of a VMI of another node"),
        (checkpoint(), checkpoint(sourceUID="u2"), vmi(), "change the source of a checkpoint"),
        (BEGUN, checkpoint(nodeName="n1"), vmi(), "change the source of a checkpoint"),
    ],
)
def test_only_the_node_of_the_source_begins_a_checkpoint(old, new, source, why):
    assert refusals(admission.SOURCES_POLICY, old, new, params=source) == [
        f'node "n1" is not allowed to {why}'
    ]


def test_a_node_makes_its_checkpoint_and_reports_that_it_is_damaged():
    ready = checkpoint(["Ready"], nodeName="n1", sourceUID="u1", digest="a")
    damaged = checkpoint(["Failed"], nodeName="n1", sourceUID="u1", digest="a")
    states = [checkpoint(), BEGUN, ready, {**ready, "metadata": {"name": "base"}}, damaged]
    other = vmi(node="n2")
    other["metadata"]["name"] = "other"
    for old, new in itertools.pairwise(states):
        assert refusals(admission.CHECKPOINTS_POLICY, old, new) == []
        for each in (vmi(), other):
            assert refusals(admission.SOURCES_POLICY, old, new, params=each) == []


KEYS = [base64.b64encode(bytes([each] * 32)).decode() for each in range(2)]


def member(name, key=""):
    return {"metadata": {"name": name, "annotations": {WIREGUARD_KEY: key} if key else {}}}


def test_a_node_cannot_have_the_wireguard_key_of_another():
    taken, free = member("n1", KEYS[0]), member("n1", KEYS[1])
    others = member("n2", KEYS[0])
    for old in (None, member("n1"), free):
        assert refusals(admission.KEYS_POLICY, old, taken, params=others) == [
            'node "n1" is not allowed to have the WireGuard key of another node'
        ]
    assert refusals(admission.KEYS_POLICY, taken, taken, params=others) == []
    assert refusals(admission.KEYS_POLICY, taken, member("n1"), params=others) == []
    for each in (others, member("n3"), taken):
        assert refusals(admission.KEYS_POLICY, taken, free, params=each) == []


def test_a_wireguard_key_has_one_spelling():
    same = KEYS[0].replace("A=", "B=")
    assert base64.b64decode(same) == base64.b64decode(KEYS[0])
    assert refusals(admission.KEYS_POLICY, None, member("n1", same), params=member("n1")) == [
        'node "n1" is not allowed to have a WireGuard key that is none'
    ]
