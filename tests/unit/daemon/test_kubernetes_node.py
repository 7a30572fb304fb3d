"""A node that joins a Kubernetes, which has none of corral's ConfigMaps."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import ConfigMap, Namespace, Node

from corral import pki
from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig
from corral.client.transport import InProcess
from corral.cluster import certificates, node_ipam
from corral.cluster.certificates import csr_approver
from corral.config import Layout
from corral.daemon import kubernetes_node
from corral.daemon.errors import CannotStart
from corral.daemon.kubernetes_node import KubernetesNode
from corral.daemon.membership import CLIENT, Membership, certificate_of
from corral.daemon.rbac import reconcile_rbac
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.transport import date_header
from corral.server.transport.listener import listening, tls_context
from corral.store import Store

HOSTS = ("127.0.0.1", "n1")
NODE = User(name="system:node:n1", groups=("system:nodes", "system:authenticated"))
SIGNERS = {
    "kubernetes.io/kube-apiserver-client-kubelet": pki.sign_request,
    "kubernetes.io/kubelet-serving": pki.sign_serving_request,
}


@dataclass
class World:
    """An API server with an administrator's client; ``layout`` is of the node's data."""

    port: int
    admin: Client
    authority: str
    layout: Layout

    def node(self, token="admin", **options):
        options = {"bootstraps": True, "service_cidrs": "10.96.0.0/12", "backend": "none"} | options
        server = f"https://127.0.0.1:{self.port}"
        config = Kubeconfig(server=server, authority=self.authority, token=token)
        return KubernetesNode(config=config, **options)


@pytest.fixture
def running(tmp_path):
    """Return a server, with controllers that approve and sign requests and allocate pod ranges."""

    @asynccontextmanager
    async def running(*, allocates=True, signs=True):
        identity = pki.ensure(tmp_path / "pki", ["127.0.0.1"])
        store = Store.in_memory()
        users = {"admin": ADMINISTRATOR, "node": NODE}
        server = ApiServer(store, authenticator=Authenticator(users))
        admin = Client(InProcess(server.handle, ADMINISTRATOR))
        for name in ("default", "kube-system"):
            await admin.create(Namespace, {"metadata": {"name": name}})
        await reconcile_rbac(admin)
        context = ControllerContext(admin)
        signers = {name: partial(sign, tmp_path / "pki") for name, sign in SIGNERS.items()}
        made = [node_ipam.controller(1, ip_network("10.244.0.0/16"))(context)] if allocates else []
        if signs:
            made += [csr_approver.controller(context), certificates.signer(signers)(context)]
        tls = tls_context(identity.certificate, identity.key, identity.clients)
        async with (
            asyncio.timeout(60),
            listening(App(server), "127.0.0.1", 0, tls) as (_, port),
            Background() as tasks,
        ):
            tasks.start(context.run(), name="context")
            for each in made:
                tasks.start(each.run(), name=each.name)
            authority = identity.authority.read_text()
            yield World(port, admin, authority, Layout(tmp_path / "node"))
        await store.close()

    return running


async def test_a_node_requests_its_certificate_and_waits_for_its_range(running):
    taint = {"key": "corral.dev/machines", "effect": "NoSchedule"}
    async with running() as world:
        node = world.node(labels={"rack": "b"}, taints=[taint])
        membership = await node.enter(world.layout, "n1")
        assert membership == Membership.load(world.layout)
        assert membership.name == "n1"
        created = await world.admin.get(Node, "n1")
        assert membership.network.pod_cidrs == created.spec.podCIDR
        assert membership.network.service_cidrs == "10.96.0.0/12"
        assert created.metadata.labels["rack"] == "b"
        assert [each.key for each in created.spec.taints] == [taint["key"]]
        async with Https(node.reached(world.layout)) as transport:  # as the node
            assert (await Client(transport).get(Node, "n1")).metadata.name == "n1"


async def test_a_host_whose_clock_is_far_off_does_not_join_and_a_member_goes_on(
    running, monkeypatch
):
    written = date_header._of
    async with running() as world:
        monkeypatch.setattr(date_header, "_of", lambda second: written(second + 600))
        with pytest.raises(CannotStart, match="clock of this host is 10 minutes behind") as caught:
            await world.node().enter(world.layout, "n1")
        assert "join again" in caught.value.hint
        assert Membership.load(world.layout) is None
        monkeypatch.undo()
        membership = await world.node().enter(world.layout, "n1")
        monkeypatch.setattr(date_header, "_of", lambda second: written(second + 600))
        assert await world.node().enter(world.layout, "n1") == membership


async def test_a_member_keeps_its_certificate(running):
    async with running() as world:
        await world.node().enter(world.layout, "n1")
        before = certificate_of(world.layout, CLIENT)
        await world.node(token="forgotten").enter(world.layout, "n1")
        assert certificate_of(world.layout, CLIENT) == before


async def test_an_expired_certificate_is_requested_again(running, monkeypatch):
    async with running() as world:
        await world.node().enter(world.layout, "n1")
        path = world.layout.pki / f"{CLIENT}.crt"
        path.write_text("damaged")
        await world.node().enter(world.layout, "n1")
        assert certificate_of(world.layout, CLIENT) is not None


async def test_a_member_starts_without_its_server(running):
    async with running() as world:
        membership = await world.node().enter(world.layout, "n1")
        away = world.node()
    assert await away.enter(world.layout, "n1") == membership
    with pytest.raises(CannotStart, match="does not answer"):
        await away.enter(Layout(world.layout.root / "new"), "n1")


async def test_all_pods_have_the_range_of_a_flag(running):
    async with running() as world:
        entered = await world.node(cluster_cidrs="10.244.0.0/16").enter(world.layout, "n1")
        assert entered.network.pod_cidrs == "10.244.0.0/16"


async def test_a_node_without_a_range_allocator_creates_its_range(running):
    async with running(allocates=False) as world:
        entered = await world.node(pod_cidrs=["10.5.0.0/24"]).enter(world.layout, "n1")
        assert entered.network.pod_cidrs == "10.5.0.0/24"
        assert (await world.admin.get(Node, "n1")).spec.podCIDRs == ["10.5.0.0/24"]


async def test_a_missing_range_is_reported(running, monkeypatch):
    monkeypatch.setattr(kubernetes_node, "RANGE_SECONDS", 0.05)
    async with running(allocates=False) as world:
        with pytest.raises(CannotStart, match=r"Node n1 has had no spec\.podCIDRs") as caught:
            await world.node().enter(world.layout, "n1")
        assert "--pod-cidr" in caught.value.hint


async def test_an_unknown_token_is_reported(running):
    async with running() as world:
        with pytest.raises(CannotStart, match="does not know the user of the kubeconfig"):
            await world.node(token="wrong").enter(world.layout, "n1")
        assert Membership.load(world.layout) is None


async def test_the_user_of_a_kubeconfig_is_the_node(running):
    async with running() as world:
        node = world.node(token="admin", bootstraps=False)
        with pytest.raises(CannotStart, match="user is kubernetes-admin, and that of") as caught:
            await node.enter(world.layout, "n1")
        assert "--bootstrap-kubeconfig" in caught.value.hint
        entered = await world.node(token="node", bootstraps=False).enter(world.layout, "n1")
        assert entered.name == "n1"


async def test_the_node_of_a_kubelet_is_left_alone(running):
    info = dict.fromkeys(
        ("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
         "machineID", "operatingSystem", "osImage", "systemUUID"), "",
    )  # fmt: skip
    info["containerRuntimeVersion"] = "containerd://2.1.0"
    async with running() as world:
        await world.admin.create(Node, {"metadata": {"name": "n1"}})
        status = {"status": {"nodeInfo": info}}
        await world.admin.patch(Node, Key("", "n1"), status, subresource="status")
        with pytest.raises(CannotStart, match="runs containers with containerd") as caught:
            await world.node().enter(world.layout, "n1")
        assert "--name n1-corral" in caught.value.hint
        assert certificate_of(world.layout, CLIENT) is None, "it is no use under another name"
        assert (await world.node().enter(world.layout, "n1-corral")).name == "n1-corral"


async def test_a_data_directory_is_of_one_node(running):
    async with running() as world:
        await world.node().enter(world.layout, "n1")
        with pytest.raises(CannotStart, match="is the data of node n1"):
            await world.node().enter(world.layout, "n2")


async def test_the_client_ca_is_that_of_the_flag_or_the_server(running):
    async with running() as world:
        await world.node(clients="mine").enter(world.layout, "n1")
        assert world.layout.clients.read_text() == "mine"
        other = replace(world, layout=Layout(world.layout.root / "other"))
        await other.node().enter(other.layout, "n2")
        assert other.layout.clients.read_text() == world.authority, "that of the kubeconfig"
        metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        document = {"metadata": metadata, "data": {"client-ca-file": "theirs"}}
        await world.admin.create(ConfigMap, document)
        await other.node().enter(other.layout, "n2")
        assert other.layout.clients.read_text() == "theirs"


async def test_a_self_signed_certificate_serves_until_one_is_signed(running):
    async with running() as world:
        node = world.node()
        await node.enter(world.layout, "n1")
        credentials = node.credentials(world.layout, "n1")
        assert credentials.served(HOSTS) is None
        certificate, _ = credentials.provisional(HOSTS)
        assert set(pki.certificate_hosts(certificate.read_bytes())) == set(HOSTS)
        assert credentials.served(HOSTS) is None, "that one is not signed"
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"status": {"addresses": addresses}}
        await world.admin.patch(Node, Key("", "n1"), status, subresource="status")
        async with Https(node.reached(world.layout)) as transport:
            signed = await credentials.serving(Client(transport), HOSTS)
        assert credentials.served(HOSTS) == signed
