"""Hosts that join a corral, and the errors of those that may not."""

import platform
import re
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster import until
from tests.hosts import API_PORT, HOLLOW, KUBELET_PORT

import corral
from corral.api.kinds.auth import bootstrap_token

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

WRONG_HASH = "sha256:" + 64 * "0"


def refusal(host, *words):
    """Return the message of ``corral join`` on a host where it fails, on one line."""
    said = host.corral(*words, *HOLLOW, check=False)
    assert "Traceback" not in said
    assert not host.layout.membership.exists()
    return " ".join(said.split())


def replaced(words, option, value):
    """The words of a command with another value of an option."""
    at = words.index(option) + 1
    return [*words[:at], value, *words[at + 1 :]]


def test_joined_nodes_are_ready_with_real_capacity(hollow):
    until("both nodes are ready", lambda: hollow.ready(*hollow.hosts[:2]))
    node = hollow.nodes()["host2"]
    assert {each["type"]: each["address"] for each in node["status"]["addresses"]} == {
        "InternalIP": hollow.hosts[1].address,
        "Hostname": "host2",
    }
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == KUBELET_PORT
    shown = hollow.first.kubectl("get", "nodes", "host2", "-o", "wide")
    assert hollow.hosts[1].address in shown
    assert platform.release() in shown
    assert node["status"]["capacity"]["cpu"] == hollow.nodes()["host1"]["status"]["capacity"]["cpu"]
    assert corral.__version__ in node["status"]["nodeInfo"]["kubeletVersion"]


def test_an_expired_token_is_rejected(hollow):
    past = datetime.now(UTC) - timedelta(seconds=1)
    token = bootstrap_token.new_token(past)
    hollow.api.one.call("POST", "/api/v1/namespaces/kube-system/secrets", token.document())
    words = replaced(hollow.join_words, "--token", token.value)
    assert "the token has expired" in refusal(hollow.hosts[2], *words)


def test_a_deleted_token_is_rejected(hollow):
    token = hollow.first.corral("token", "create", "--ttl", "1h", "--description", "rack b").strip()
    token_id = token.partition(".")[0]
    words = replaced(hollow.join_words, "--token", token)
    listed = hollow.first.corral("token", "list")
    assert re.search(rf"^{token_id}\.\*+ .* rack b$", listed, re.MULTILINE)
    assert token not in listed
    assert hollow.first.corral("token", "delete", token_id) == f"token {token_id} is deleted\n"
    said = refusal(hollow.hosts[2], *words)
    assert "does not know the token, or the token has expired" in said
    assert "corral token create on the first host makes another one" in said


def test_another_ca_is_not_trusted(hollow):
    words = hollow.join_words
    right = words[words.index("--ca-hash") + 1]
    said = refusal(hollow.hosts[2], *replaced(words, "--ca-hash", WRONG_HASH))
    assert f"has the hash {right}, not {WRONG_HASH}" in said
    assert "Another may answer in its place." in said


def test_a_closed_port_is_reported(hollow):
    words = list(hollow.join_words)
    words[1] = f"https://{hollow.first.address}:{API_PORT + 1}"
    said = refusal(hollow.hosts[2], *words)
    assert f"https://{hollow.first.address}:{API_PORT + 1} does not answer" in said
    assert "Is the port open?" in said


@pytest.mark.parametrize("name", ["host1", "host2"])
def test_a_node_name_in_use_is_rejected(hollow, name):
    said = refusal(hollow.hosts[2], *hollow.join_words, "--name", name)
    assert f'node "{name}" exists' in said
    assert "join under another name" in said


def test_a_data_directory_has_one_agent(hollow):
    agent = hollow.hosts[1]
    said = " ".join(agent.corral("join", *HOLLOW, check=False).split())
    assert f"corral runs already on {agent.directory} (process {agent.pid})" in said


def test_a_directory_with_a_cluster_does_not_join(hollow):
    words = [*hollow.join_words, *HOLLOW]
    said = " ".join(hollow.first.corral(*words, check=False).split())
    assert f"{hollow.first.directory} holds a cluster of its own (corral up)" in said


def test_joining_without_a_token_names_what_is_needed(hollow):
    said = refusal(hollow.hosts[2], "join")
    assert "this host has not joined a cluster yet" in said
    assert "corral token create --print-join-command" in said


def test_a_member_does_not_join_another_cluster(hollow):
    host = hollow.hosts[2]
    shutil.copytree(hollow.hosts[1].layout.pki, host.layout.pki)
    shutil.copy(hollow.hosts[1].layout.membership, host.layout.membership)
    words = list(hollow.join_words)
    words[1] = f"https://{hollow.first.address}:{API_PORT + 1}"
    said = " ".join(host.corral(*words, *HOLLOW, check=False).split())
    host.layout.membership.unlink()
    assert f"this host is node host2 of https://{hollow.first.address}:{API_PORT}" in said


def test_a_node_gets_labels_and_taints_and_can_leave(hollow):
    host = hollow.hosts[2]
    label, taint = ("--label", "rack=b"), ("--taint", "dedicated=lab:NoSchedule")
    said = hollow.join(host, *HOLLOW, *label, *taint)
    assert said.startswith(f"node host3 has joined https://{hollow.first.address}:{API_PORT}\n")
    until("the node is ready", lambda: hollow.ready(host))
    node = hollow.nodes()["host3"]
    assert node["metadata"]["labels"]["rack"] == "b"
    assert {"key": "dedicated", "value": "lab", "effect": "NoSchedule"} in node["spec"]["taints"]
    said = host.corral("leave", "--grace-period", "0")
    assert said.startswith("Node host3 has left")
    assert "host3" not in hollow.nodes()
    assert not host.layout.membership.exists()
    assert "no cluster was joined" in host.corral("leave", check=False)
    hollow.join(host, *HOLLOW)
    until("the node is back", lambda: hollow.ready(host))
