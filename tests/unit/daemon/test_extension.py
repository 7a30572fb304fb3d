"""An installation on an API server that has Kubernetes' own kinds alone, used from outside.

The controllers have the account and the rights of the manifests; webhooks are called over HTTPS by
way of their Service, the aggregated API with a front proxy's certificate.
"""

import asyncio
import base64
import contextlib
import functools
import json
import random
import socket
import ssl
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
import trustme
from lightkube.models.admissionregistration_v1 import ValidatingWebhookConfiguration
from lightkube.models.core_v1 import ConfigMap, Namespace, PersistentVolumeClaim, Pod, Service

from corral import controllers as own
from corral.aio import Background
from corral.api.errors import ApiError, Forbidden, Invalid, NotFound
from corral.api.kinds import KINDS
from corral.api.kinds.admissionregistration.match_rules import GROUP
from corral.api.kinds.core.machine_nodes import MACHINE_NODES
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.crd.definition import DEFINITION
from corral.api.kinds.kubevirt.kinds import REPLICA_SET, VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.table import KindTable
from corral.api.kinds.vmi.migration_status import CONTROLLERS_FIELDS
from corral.api.object import AnyFields, Key, Struct
from corral.api.request import Request, User
from corral.client.client import Client
from corral.client.decoding import WatchEvent
from corral.client.kubeconfig import Kubeconfig
from corral.client.transport import InProcess
from corral.cluster import clusterrole_aggregation, crd
from corral.daemon.component_users import STAND_IN
from corral.daemon.controllers_process import LEASE, ControllersProcess
from corral.daemon.errors import CannotStart
from corral.daemon.install import installer, manifests
from corral.daemon.install.options import CONTROLLERS, NAMESPACE, Options
from corral.daemon.rbac import reconcile_rbac
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.extension import front_proxy
from corral.server.transport.listener import listening
from corral.store import Store

AUTHORITY = trustme.CA()
PROXIES = trustme.CA()
OURS = ("kubevirt.io", "corral.dev")
KUBERNETES = KindTable(kind for kind in KINDS if not kind.group.endswith(OURS))
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"


@functools.cache
def documents():
    """All but the APIServices: this server aggregates no others, so the API is called directly."""
    return [each for each in manifests.documents(Options()) if each["kind"] != "APIService"]


class View(Struct, kw_only=True):
    """An object of any kind, as it comes."""

    metadata: AnyFields = {}
    spec: AnyFields = {}
    status: AnyFields = {}


@dataclass
class Cluster:
    """A cluster: its administrator's client, URL and CA."""

    server: ApiServer
    port: int
    admin: Client
    address: str = ""

    def client(self, name, *groups):
        user = User(name=name, groups=(*groups, "system:authenticated"))
        return Client(InProcess(self.server.handle, user))

    async def config(self):
        """The controllers' kubeconfig, with a token of their account."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{CONTROLLERS}/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = json.loads(await self.admin.request("POST", path, document=review))
        return Kubeconfig(
            server=f"https://127.0.0.1:{self.port}",
            token=answer["status"]["token"],
            authority=AUTHORITY.cert_pem.bytes().decode(),
        )

    async def until(self, holds, name="", namespace="", *, kind=None, view=View):
        """Wait until the objects of a kind, of one name if given, satisfy a condition."""
        fields = f"metadata.name={name}" if name else ""
        async with asyncio.timeout(60):
            while True:
                found = await self.admin.list(view, namespace, fields=fields, kind=kind)
                if holds(found.items):
                    return found.items
                watch = self.admin.watch(
                    view,
                    namespace,
                    fields=fields,
                    kind=kind,
                    resource_version=found.resource_version,
                )
                async with aclosing(watch) as events:
                    async for event in events:
                        if isinstance(event, WatchEvent):
                            break


@asynccontextmanager
async def bare():
    """A server with Kubernetes' own kinds, and the controllers of definitions."""
    store = Store.in_memory()
    server = ApiServer(store, KUBERNETES, authenticator=Authenticator({"secret": ADMINISTRATOR}))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    admin = Client(InProcess(server.handle, ADMINISTRATOR))
    async with (
        listening(App(server), "127.0.0.1", 0, tls) as (_, port),
        aclosing(server.reviewers),
        Background() as tasks,
    ):
        for name in ("default", "kube-system"):
            await admin.create(Namespace, {"metadata": {"name": name}})
        await reconcile_rbac(admin)
        proxies = {
            "requestheader-client-ca-file": PROXIES.cert_pem.bytes().decode(),
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
        }
        name = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        await admin.create(ConfigMap, {"metadata": name, "data": proxies})
        context = ControllerContext(Client(InProcess(server.handle, STAND_IN)), built_in=KUBERNETES)
        for make in (crd.controller, clusterrole_aggregation.controller):
            tasks.start(make(context).run(), name="stand-in")
        tasks.start(context.run(), name="context")
        yield Cluster(server, port, admin)
    await store.close()


@pytest.fixture
async def cluster():
    async with bare() as made:
        yield made


def free_node_port():
    """A port of this host in the range of NodePorts, by which the Service is reached here."""
    for port in random.sample(range(30000, 32768), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


@asynccontextmanager
async def controllers(cluster):
    """Our controllers, in the cluster's Service."""
    ready = asyncio.get_running_loop().create_future()
    port = free_node_port()
    reached = [{"op": "replace", "path": "/spec/type", "value": "NodePort"}]
    reached.append({"op": "add", "path": "/spec/ports/0/nodePort", "value": port})
    await cluster.admin.patch(Service, Key(NAMESPACE, CONTROLLERS), reached)
    process = ControllersProcess(
        config=await cluster.config(),
        make=lambda context: own.controllers(context, placement=MACHINE_NODES),
        lease=Key(NAMESPACE, LEASE),
        bind=("127.0.0.1", port),
        install_namespace=NAMESPACE,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(process.run(ready.set_result))
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        cluster.address = ready.result()["health"].removesuffix("/readyz")
        yield
        running.cancel()


@pytest.fixture
async def installed(cluster):
    """A cluster in which the manifests are applied, and the controllers lead."""
    await installer.install(cluster.admin, documents(), lambda _line: None)
    async with controllers(cluster):
        await cluster.until(
            lambda found: all(each.clientConfig.caBundle for each in found[0].webhooks),
            CONTROLLERS,
            view=ValidatingWebhookConfiguration,
        )
        yield cluster


async def create_set(cluster, replica_set):
    return await cluster.admin.create(View, replica_set, "default", kind=REPLICA_SET)


@pytest.fixture
def replica_set():
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "domain": {
                        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                        "memory": {"guest": "128Mi"},
                    },
                    "volumes": [{"name": "root", "containerDisk": {"image": "demo"}}],
                },
            },
        },
    }


async def test_a_replica_set_becomes_vmis_with_pods(installed, replica_set):
    await create_set(installed, replica_set)
    vmis = await installed.until(lambda found: len(found) == 2, kind=VIRTUAL_MACHINE_INSTANCE)
    for each in vmis:
        assert each.spec["domain"]["firmware"]["uuid"]
        assert each.status["phase"] in ("Pending", "Scheduling")
        assert each.metadata["finalizers"]
    pods = await installed.until(lambda found: len(found) == 2, view=Pod)
    assert all(each.spec.tolerations for each in pods)
    await installed.until(
        lambda found: {each.status.get("phase") for each in found} == {"Scheduling"},
        kind=VIRTUAL_MACHINE_INSTANCE,
    )
    scale = {"spec": {"replicas": 1}}
    await installed.admin.patch(
        View, Key("default", "web"), scale, subresource="scale", kind=REPLICA_SET
    )
    await installed.until(
        lambda found: sum("deletionTimestamp" not in one.metadata for one in found) == 1,
        kind=VIRTUAL_MACHINE_INSTANCE,
    )


async def test_an_invalid_replica_set_is_rejected_with_kubevirts_message(installed, replica_set):
    replica_set["spec"]["selector"]["matchLabels"] = {"app": "other"}
    with pytest.raises(
        Invalid,
        match=r'admission webhook "virtualmachinereplicaset-validator\.kubevirt\.io" denied the '
        "request: selector does not match labels",
    ) as refused:
        await create_set(installed, replica_set)
    assert refused.value.details.causes[0].field == "spec.selector"


async def test_the_schema_is_checked_by_the_api_server(installed, replica_set):
    replica_set["spec"]["template"]["spec"]["domain"]["devices"] = []
    with pytest.raises(Invalid, match=r"spec\.template\.spec\.domain\.devices"):
        await create_set(installed, replica_set)


async def test_columns_are_those_of_the_embedded_server(installed, replica_set):
    await create_set(installed, replica_set)
    headers = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    request = Request(method="GET", path=SETS, headers=headers, user=ADMINISTRATOR)
    table = json.loads((await installed.server.handle(request)).body)
    names = [each["name"] for each in table["columnDefinitions"]]
    assert names == ["Name", "Desired", "Current", "Ready", "Age"]
    assert table["rows"][0]["cells"][:2] == ["web", 2]


async def test_users_cannot_write_the_status_of_vmis(installed, replica_set):
    await create_set(installed, replica_set)
    vmis = await installed.until(lambda found: found, kind=VIRTUAL_MACHINE_INSTANCE)
    key = Key("default", vmis[0].metadata["name"])
    change = {"status": {"nodeName": "elsewhere"}, "metadata": {"labels": {"seen": "yes"}}}
    changed = await installed.admin.patch(View, key, change, kind=VIRTUAL_MACHINE_INSTANCE)
    assert changed.metadata["labels"]["seen"] == "yes"
    assert "nodeName" not in changed.status


async def test_a_node_writes_only_its_own_vmis(cluster, replica_set):
    """No controllers run: users in the group of nodes bypass the webhooks."""
    await installer.install(cluster.admin, documents(), lambda _line: None)
    maker = cluster.client("maker", "system:masters", "system:nodes")
    spec = replica_set["spec"]["template"]["spec"]
    for name, node in (("a", "n1"), ("b", "n2")):
        metadata = {"name": name, "labels": {"kubevirt.io/nodeName": node}}
        document = {"metadata": metadata, "spec": spec, "status": {"nodeName": node}}
        await maker.create(View, document, "default", kind=VIRTUAL_MACHINE_INSTANCE)
    node = cluster.client("system:node:n1", "system:nodes")

    async def change(name, **fields):
        return await node.patch(View, Key("default", name), fields, kind=VIRTUAL_MACHINE_INSTANCE)

    phase = {"phase": "Running"}
    assert (await change("a", status=phase)).status["phase"] == "Running"
    with pytest.raises(ApiError, match='node "n1" is not allowed to change a VMI of another node'):
        await change("b", status=phase)
    with pytest.raises(ApiError, match='node "n1" is not allowed to change the spec of a VMI'):
        await change("a", spec={"hostname": "x"})
    with pytest.raises(ApiError, match='node "n1" is not allowed to move a VMI'):
        await change("a", status={"nodeName": "n2"})
    for name in CONTROLLERS_FIELDS:
        with pytest.raises(ApiError, match=f"to change status.migrationState.{name} of a VMI"):
            await change("a", status={"migrationState": {name: "n1"}})
    state = {"migrationUid": "m", "sourceNode": "n2", "targetNode": "n1"}
    for name, failed in (("c", False), ("d", True)):
        labels = {"kubevirt.io/nodeName": "n2", "kubevirt.io/migrationTargetNodeName": "n1"}
        status = {"nodeName": "n2", "migrationState": {**state, "failed": failed}}
        document = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        await maker.create(View, document, "default", kind=VIRTUAL_MACHINE_INSTANCE)
    for name, to in (("c", "n3"), ("d", "n1")):
        with pytest.raises(ApiError, match='node "n1" is not allowed to move a VMI'):
            await change(name, status={"nodeName": to})
    moved = {"nodeName": "n1", "migrationState": {"completed": True}}
    assert (await change("c", status=moved)).status["nodeName"] == "n1"


async def test_the_aggregated_api_starts_a_machine(installed, replica_set):
    template = replica_set["spec"]["template"]
    vm = {"metadata": {"name": "db"}, "spec": {"runStrategy": "Halted", "template": template}}
    await installed.admin.create(View, vm, "default", kind=VIRTUAL_MACHINE)
    path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/db/start"
    tls = await trusting(installed)
    PROXIES.issue_cert("proxy", common_name="front-proxy-client").configure_cert(tls)
    user = {"x-remote-user": "admin", "x-remote-group": "system:masters"}
    async with httpx2.AsyncClient(verify=tls, trust_env=False) as front_proxy:
        answer = await front_proxy.put(f"{installed.address}{path}", json={}, headers=user)
        assert answer.status_code == 202, answer.text
    await installed.until(lambda found: found, "db", kind=VIRTUAL_MACHINE_INSTANCE)


async def test_a_front_proxy_of_a_replaced_authority_is_trusted_no_more(installed):
    user = {"x-remote-user": "admin", "x-remote-group": "system:masters"}
    present = trustme.CA()
    config = {"data": {"requestheader-client-ca-file": present.cert_pem.bytes().decode()}}
    url = f"{installed.address}/apis/subresources.kubevirt.io/v1"
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for authority in (PROXIES, present):
            tls = await trusting(installed)
            authority.issue_cert("proxy", common_name="front-proxy-client").configure_cert(tls)
            client = httpx2.AsyncClient(verify=tls, trust_env=False)
            clients.append(await stack.enter_async_context(client))
        former, latter = clients
        assert (await former.get(url, headers=user)).status_code == 200
        await installed.admin.patch(ConfigMap, front_proxy.CONFIG, config)
        async with asyncio.timeout(60):
            while (await former.get(url, headers=user)).status_code != 401:
                await asyncio.sleep(0.05)
        assert (await latter.get(url, headers=user)).status_code == 200


async def test_only_the_front_proxy_may_name_users(installed):
    path = "/apis/subresources.kubevirt.io/v1"
    user = {"x-remote-user": "admin", "x-remote-group": "system:masters"}
    tls = await trusting(installed)
    async with httpx2.AsyncClient(verify=tls, trust_env=False) as anybody:
        answer = await anybody.get(f"{installed.address}{path}", headers=user)
        assert answer.status_code == 401
        assert (await anybody.get(f"{installed.address}/healthz")).text == "ok"


async def trusting(cluster):
    """TLS that trusts what the controllers have published."""
    found = await cluster.admin.get(ValidatingWebhookConfiguration, CONTROLLERS)
    bundle = base64.b64decode(found.webhooks[0].clientConfig.caBundle)
    return ssl.create_default_context(cadata=bundle.decode())


async def test_without_controllers_objects_are_rejected(cluster, replica_set):
    await installer.install(cluster.admin, documents(), lambda _line: None)
    with pytest.raises(ApiError, match="failed calling webhook"):
        await create_set(cluster, replica_set)


async def test_only_our_controllers_populate_claims_by_annotation(cluster):
    await installer.install(cluster.admin, documents(), lambda _line: None)
    claim = {
        "metadata": {"name": "a", "annotations": {"corral.dev/populate": "{}"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    with pytest.raises(Forbidden, match="only corral's controllers set this annotation"):
        await cluster.admin.create(PersistentVolumeClaim, claim, "default")
    del claim["metadata"]["annotations"]
    await cluster.admin.create(PersistentVolumeClaim, claim, "default")
    change = {"metadata": {"annotations": {"corral.dev/populate": "{}"}}}
    with pytest.raises(Forbidden, match="only corral's controllers set this annotation"):
        await cluster.admin.patch(PersistentVolumeClaim, Key("default", "a"), change)


async def test_uninstall_removes_all_applied_objects(cluster):
    applied, deleted = [], []
    await installer.install(cluster.admin, documents(), applied.append)
    await installer.install(cluster.admin, documents(), lambda _line: None)  # once more: no change
    await installer.uninstall(cluster.admin, documents(), deleted.append)
    assert {each.split()[0] for each in deleted} == {each.split()[0] for each in applied}
    with pytest.raises(NotFound):
        await cluster.admin.list(View, kind=REPLICA_SET)


async def test_definitions_of_others_are_left_alone(cluster):
    (definition,) = (
        each for each in documents() if each["metadata"]["name"] == REPLICA_SET.resource
    )
    metadata = {"name": REPLICA_SET.resource}
    await cluster.admin.create(View, definition | {"metadata": metadata}, kind=DEFINITION)
    for work in (installer.install, installer.uninstall):
        with pytest.raises(installer.InstallError, match="is not of corral install: KubeVirt"):
            await work(cluster.admin, documents(), lambda _line: None)
    assert not [
        each
        for each in (await cluster.admin.list(Namespace)).items
        if each.metadata.name == NAMESPACE
    ]


async def test_controllers_require_an_installation(cluster):
    process = ControllersProcess(
        config=Kubeconfig(
            server=f"https://127.0.0.1:{cluster.port}",
            token="secret",
            authority=AUTHORITY.cert_pem.bytes().decode(),
        ),
        make=own.controllers,
        lease=None,
        bind=("127.0.0.1", 0),
        install_namespace="nowhere",
    )
    with pytest.raises(CannotStart, match='namespaces "nowhere" not found: nothing is installed'):
        await process.run(lambda _summary: None)


async def test_a_namespace_of_others_is_left_alone(cluster):
    in_default = [
        each
        for each in manifests.documents(Options(namespace="default"))
        if each["kind"] != "APIService"
    ]
    with pytest.raises(installer.InstallError, match="choose another with --namespace"):
        await installer.install(cluster.admin, in_default, lambda _line: None)
    await installer.install(cluster.admin, documents(), lambda _line: None)
    deleted = []
    await installer.uninstall(cluster.admin, in_default, deleted.append)
    assert "namespaces/default deleted" not in deleted
    assert (await cluster.admin.get(Namespace, "default")).metadata.deletionTimestamp is None


async def test_uninstall_counts_the_objects_to_delete(cluster, replica_set):
    assert await installer.lost_objects(cluster.admin) == {}
    await installer.install(cluster.admin, documents(), lambda _line: None)
    template = replica_set["spec"]["template"]
    vm = {"metadata": {"name": "db"}, "spec": {"runStrategy": "Halted", "template": template}}
    for each in documents():
        if each["kind"].endswith("WebhookConfiguration"):
            key = Key("", each["metadata"]["name"])
            await cluster.admin.delete(View, key, kind=KINDS.by_kind(GROUP, each["kind"]))
    await cluster.admin.create(View, vm, "default", kind=VIRTUAL_MACHINE)
    base = {"metadata": {"name": "base"}, "spec": {"source": {"name": "db"}}}
    await cluster.admin.create(View, base, "default", kind=CHECKPOINT)
    assert await installer.lost_objects(cluster.admin) == {
        "virtualmachines": 1,
        "virtualmachinecheckpoints": 1,
    }
