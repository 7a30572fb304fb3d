"""A server over a store in memory, and short ways to ask it."""

import json
from dataclasses import dataclass, field

import pytest

from corral.api.request import Certificate, Request, User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.daemon.rbac import reconcile_rbac
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SERVICES = "/api/v1/namespaces/default/services"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
MERGE = {"content-type": "application/merge-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}


@dataclass
class Answer:
    """What came back, read."""

    status: int
    document: dict | None
    text: str
    headers: dict
    warnings: list = field(default_factory=list)

    def __getitem__(self, name):
        return self.document[name]

    @property
    def metadata(self):
        return self.document["metadata"]

    @property
    def names(self):
        return [item["metadata"]["name"] for item in self.document["items"]]


class Asker:
    """Asks the server as one user."""

    def __init__(self, server, user=ADMINISTRATOR):
        self.server = server
        self.user = user
        self.shown = {"user": user}

    def as_user(self, name, *groups):
        return Asker(self.server, User(name=name, groups=(*groups, "system:authenticated")))

    async def raw(self, method, path, body=None, headers=None):
        path, _, query = path.partition("?")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        request = Request(
            method=method,
            path=path,
            query=query,
            headers=headers or {},
            body=body or b"",
            **self.shown,
        )
        return await self.server.handle(request)

    async def __call__(self, method, path, body=None, headers=None):
        response = await self.raw(method, path, body, headers)
        assert isinstance(response.body, bytes), "a stream where an answer was expected"
        kinds = dict(response.headers)
        is_json = kinds.get("content-type", "").startswith("application/json")
        return Answer(
            response.status,
            json.loads(response.body) if is_json and response.body else None,
            response.body.decode(),
            kinds,
            [value for name, value in response.headers if name == "warning"],
        )

    async def patch(self, path, body, headers=MERGE):
        return await self("PATCH", path, body, headers)

    async def create(self, path, name, **fields):
        labels = fields.pop("labels", None)
        metadata = {"name": name, **({"labels": labels} if labels else {})}
        answer = await self("POST", path, {"metadata": metadata, **fields})
        assert answer.status == 201, answer.text
        return answer.document

    async def frames(self, path, headers=None):
        """All events of a watch until it ends."""
        response = await self.raw("GET", path, headers=headers)
        assert response.status == 200
        text = b"".join([chunk async for chunk in response.body])
        return [json.loads(line) for line in text.splitlines()]


class Outside(Asker):
    """Asks by a certificate: what is a client's, components of the server's process never are."""

    def __init__(self, server, user=ADMINISTRATOR):
        super().__init__(server, user)
        certificate = Certificate(
            name=user.name, groups=user.groups, begins=0, ends=1e12, fingerprint=""
        )
        self.shown = {"certificate": certificate}


@pytest.fixture
def outside(ask):
    """The administrator's way to the server from outside."""
    return Outside(ask.server)


@pytest.fixture
def asker():
    """Makes an administrator's way to a server."""
    return Asker


@pytest.fixture
async def ask():
    """An administrator's way to a server that has the namespace ``default``."""
    store = Store.in_memory()
    ask = Asker(ApiServer(store))
    assert (
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    ).status == 201
    yield ask
    await store.close()


async def reconcile_roles(ask):
    """Give a server the roles and bindings that every cluster has, where it lacks them."""
    await reconcile_rbac(Client(InProcess(ask.server.handle, ADMINISTRATOR)))


@pytest.fixture
async def policy(ask):
    """The roles and bindings that every cluster has."""
    await reconcile_roles(ask)


@pytest.fixture
def replica_set():
    """A replica set as users write it."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": machine_spec()},
        },
    }


def machine_spec():
    return {
        "domain": {
            "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [{"name": "root", "containerDisk": {"image": "demo"}}],
    }


@pytest.fixture
def machine():
    """A machine as users write it."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "labels": {"app": "web"}},
        "spec": machine_spec(),
    }


@pytest.fixture
def pod():
    """A pod that a node runs."""
    return {
        "metadata": {"name": "pod"},
        "spec": {"nodeName": "one", "containers": [{"name": "compute", "image": "demo"}]},
    }
