"""The loop that keeps policies: what it writes, when, and what it does when that fails."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import Namespace, Pod
from lightkube.models.networking_v1 import NetworkPolicy

from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.network import nft
from corral.node.network.netlink import NetworkError
from corral.node.network_policy import network_policy_controller as module
from corral.node.network_policy.network_policy_controller import NetworkPolicyController
from corral.node.network_policy.nft_rules import PROBE, REMOVAL
from corral.node.network_policy.nft_table import Table
from corral.node.network_policy.parsed_policy import PodInfo
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
FRAME = "table inet corral_policy {"
DENY = Key("default", "deny")


class Kernel:
    """Records what is applied, and fails as often as a test says."""

    def __init__(self):
        self.texts = []
        self.refuses = 0
        self.reported = []

    async def call(self, _apply, text):
        if self.refuses:
            self.refuses -= 1
            raise NetworkError("nftables refuses: no such table")
        self.texts.append(text() or PROBE)


class Network:
    pod_cidrs = (ip_network("10.244.0.0/16"),)

    def __init__(self):
        self.namespace = Kernel()


@asynccontextmanager
async def running():
    store = Store.in_memory()
    server = ApiServer(store)
    client = Client(InProcess(server.handle, ADMIN))
    context, network = ControllerContext(Client(InProcess(server.handle, ADMIN))), Network()
    await client.create(Namespace, {"metadata": {"name": "default"}})
    try:
        async with Background() as tasks:
            tasks.start(context.run(), name="context")
            kernel = network.namespace
            policies = NetworkPolicyController(
                context, network, on_change=lambda: kernel.reported.append(policies.problems())
            )
            tasks.start(policies.run(), name="policies")
            yield client, kernel
    finally:
        await store.close()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def add_pod(client, name, address):
    containers = [{"name": "compute", "image": "none"}]
    metadata = {"name": name, "namespace": "default"}
    await client.create(Pod, {"metadata": metadata, "spec": {"containers": containers}})
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await client.patch(Pod, Key("default", name), {"status": status}, subresource="status")


async def add_policy(client):
    document = {"metadata": {"name": "deny", "namespace": "default"}, "spec": {"podSelector": {}}}
    await client.create(NetworkPolicy, document)


@pytest.mark.looptime
async def test_without_policies_there_is_no_table():
    async with running() as (client, kernel):
        await add_pod(client, "a", "10.244.0.5")
        await until(lambda: kernel.texts)
        await asyncio.sleep(1)
        assert kernel.texts == [REMOVAL]


async def test_the_first_policy_creates_the_table_and_the_last_removes_it():
    async with running() as (client, kernel):
        await add_pod(client, "a", "10.244.0.5")
        await add_policy(client)
        await until(lambda: "10.244.0.5 : jump" in kernel.texts[-1] if kernel.texts else False)
        assert kernel.texts[-1].startswith("table inet corral_policy\ndelete table")
        await client.delete(NetworkPolicy, DENY)
        await until(lambda: kernel.texts[-1] == REMOVAL)


@pytest.mark.looptime
async def test_a_new_pod_adds_elements_and_an_unchanged_status_none():
    async with running() as (client, kernel):
        await add_policy(client)
        await until(lambda: kernel.texts and kernel.texts[-1] != REMOVAL)
        await add_pod(client, "a", "10.244.0.5")
        await until(lambda: "10.244.0.5" in kernel.texts[-1])
        assert FRAME not in kernel.texts[-1]
        count = len(kernel.texts)
        patch = {"status": {"message": "still there"}}
        await client.patch(Pod, Key("default", "a"), patch, subresource="status")
        await asyncio.sleep(1)
        assert len(kernel.texts) == count


async def test_after_a_rejection_the_whole_table_is_written(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    async with running() as (client, kernel):
        await add_policy(client)
        await until(lambda: kernel.texts and kernel.texts[-1] != REMOVAL)
        kernel.refuses = 2
        await add_pod(client, "a", "10.244.0.5")
        await until(lambda: "10.244.0.5" in kernel.texts[-1])
        assert kernel.texts[-1].startswith("table inet corral_policy\ndelete table")


async def test_a_policy_that_is_not_enforced_is_reported(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    async with running() as (client, kernel):
        kernel.refuses = 2
        await add_policy(client)
        await until(lambda: len(kernel.reported) == 2)
        assert kernel.reported == [
            ["NetworkPolicies are not enforced: nftables refuses: no such table"],
            [],
        ]


def test_large_changes_are_written_in_steps(monkeypatch):
    done = []

    def apply(text):
        if len(text) > nft.TRANSACTION_CHARACTERS:
            raise NetworkError("nftables refuses: Message too long")
        done.append(text)

    monkeypatch.setattr(nft, "apply", apply)
    table = Table(Network.pod_cidrs)
    pod_infos = {
        Key("default", str(number)): PodInfo(
            "default", {}, (str(Network.pod_cidrs[0][number]),), ()
        )
        for number in range(5000)
    }
    table.change(pod_infos=pod_infos)
    module.apply(table.full_transaction)
    assert len(done) > 1
    assert "".join(done) == table.full_transaction()


def test_other_rejections_are_not_split(monkeypatch):
    def refuse(text):
        raise NetworkError("no")

    monkeypatch.setattr(nft, "apply", refuse)
    with pytest.raises(NetworkError):
        module.apply(lambda: "add chain inet corral_policy x\n")


async def test_a_removed_table_is_restored(monkeypatch):
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    async with running() as (client, kernel):
        await add_policy(client)
        await until(lambda: kernel.texts and kernel.texts[-1] == PROBE)
        kernel.refuses = 1
        await until(lambda: sum(FRAME in text for text in kernel.texts) == 2)


async def test_an_invalid_policy_is_left_out(monkeypatch):
    def refuse(policy):
        raise module.BadRequest("no selector")

    monkeypatch.setattr(module, "parse_policy", refuse)
    async with running() as (client, kernel):
        await add_pod(client, "a", "10.244.0.5")
        await add_policy(client)
        await until(lambda: kernel.texts and "10.244.0.5 : accept" in kernel.texts[-1])
        assert kernel.reported == [["the NetworkPolicy default/deny is ignored: no selector"]]


@pytest.mark.parametrize("labels", [{"team": "a"}])
async def test_changed_labels_of_a_namespace_count(labels):
    async with running() as (client, kernel):
        await add_pod(client, "a", "10.244.0.5")
        peer = {"namespaceSelector": {"matchLabels": labels}}
        spec = {"podSelector": {}, "ingress": [{"from": [peer]}]}
        await client.create(
            NetworkPolicy, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
        )
        await until(lambda: kernel.texts and "jump" in kernel.texts[-1])
        patch = {"metadata": {"labels": labels}}
        await client.patch(Namespace, Key("", "default"), patch)
        await until(lambda: "pods4 { 10.244.0.5 }" in kernel.texts[-1])
