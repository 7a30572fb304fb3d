"""Tests of streams whose users cease to be known while they are open."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from corral.api.object import Key
from corral.api.request import Certificate
from corral.api.revocation import MAP, USERS
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"
DOOR = "/api/v1/namespaces/default/pods/web/portforward"
LATER = "2999-01-01T00:00:00Z"


class Connection:
    """A client's end of a request to an ASGI app, by a certificate or a token."""

    def __init__(self, app, path, *, kind="http", query="", certificate=None, token=""):
        headers = [(b"upgrade", b"websocket")] * (kind == "websocket")
        headers += [(b"authorization", f"Bearer {token}".encode())] * bool(token)
        scope = {
            "type": kind,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "state": {"certificate": certificate},
        } | ({"method": "GET"} if kind == "http" else {})
        self.sent = []
        self._news = asyncio.Event()
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        await asyncio.Event().wait()

    async def _send(self, message):
        self.sent.append(message)
        self._news.set()

    async def begun(self):
        while not self.sent:
            self._news.clear()
            await self._news.wait()

    async def leave(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def agent(scope, receive, send):
    """A node that lets a client in and has nothing to say."""
    await send({"type": "websocket.accept"})
    await receive()


@asynccontextmanager
async def serving():
    """A server with a pod, and its store."""
    store = Store.in_memory()
    server = ApiServer(
        store,
        authenticator=Authenticator({"secret": ADMINISTRATOR}),
        nodes=lambda _name: agent,
    )
    await store.write("namespaces", Key("", "default"), {"metadata": {"name": "default"}})
    pod = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": "one", "containers": []},
        "status": {"phase": "Running"},
    }
    await store.write("pods", Key("default", "web"), pod)
    yield server, store
    await store.close()
    assert not server.sessions._requests
    assert not server.sessions._watch_tasks


def shown(name="anna", lasts=3600.0):
    now = time.time()
    return Certificate(
        name=name,
        groups=("system:masters",),
        begins=now - 400,
        ends=now + lasts,
        fingerprint="ab",
    )


async def revoke(store, *names):
    data = {USERS: json.dumps(dict.fromkeys(names, LATER))}
    await store.write("configmaps", MAP, {"metadata": {**MAP._asdict()}, "data": data})


async def test_a_watch_ends_when_its_certificate_is_revoked():
    async with serving() as (server, store):
        hers = Connection(App(server), MAPS, query="watch=1", certificate=shown())
        his = Connection(App(server), MAPS, query="watch=1", certificate=shown("ben"))
        await hers.begun()
        await his.begun()
        await revoke(store, "anna")
        async with asyncio.timeout(60):
            await hers.task
        assert hers.sent[-1] == {"type": "http.response.body", "body": b""}
        assert not his.task.done()
        await his.leave()


async def test_a_port_forward_ends_when_its_certificate_is_revoked():
    async with serving() as (server, store):
        hers = Connection(App(server), DOOR, kind="websocket", certificate=shown())
        await hers.begun()
        await revoke(store, "anna")
        async with asyncio.timeout(60):
            await hers.task
        assert hers.sent[-1]["type"] == "websocket.close"
        assert hers.sent[-1]["code"] == 1008


async def test_a_stream_ends_with_its_certificate():
    async with serving() as (server, _):
        hers = Connection(App(server), MAPS, query="watch=1", certificate=shown(lasts=0.3))
        async with asyncio.timeout(60):
            await hers.task
        assert hers.sent[0]["type"] == "http.response.start"
        assert hers.sent[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.looptime
async def test_a_stream_ends_with_the_service_account_of_its_token():
    async with serving() as (server, store):
        key = Key("default", "robot")
        account = {"metadata": {**key._asdict(), "uid": "u-1"}}
        await store.write("serviceaccounts", key, account)
        await _let_read(store)
        token, _ = server.authenticator.accounts.issue(
            account, audiences=("https://kubernetes.default.svc.cluster.local",), seconds=600
        )
        its = Connection(App(server), MAPS, query="watch=1", token=token)
        await its.begun()
        assert its.sent[0]["status"] == 200
        await store.write("serviceaccounts", Key("default", "other"), account)
        await asyncio.sleep(5)
        assert not its.task.done()
        await store.delete("serviceaccounts", key, account)
        async with asyncio.timeout(60):
            await its.task
        assert its.sent[-1] == {"type": "http.response.body", "body": b""}


async def _let_read(store):
    role = {
        "metadata": {"name": "all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }
    binding = {
        "metadata": {"name": "all"},
        "roleRef": {"kind": "ClusterRole", "name": "all"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts"}],
    }
    group = "rbac.authorization.k8s.io"
    await store.write(f"clusterroles.{group}", Key("", "all"), role)
    await store.write(f"clusterrolebindings.{group}", Key("", "all"), binding)


@pytest.mark.looptime
async def test_streams_of_static_tokens_last():
    async with serving() as (server, store):
        watch = Connection(App(server), MAPS, query="watch=1", token="secret")
        await watch.begun()
        await revoke(store, "kubernetes-admin")
        await asyncio.sleep(5)
        assert not watch.task.done()
        assert not server.sessions._requests, "static tokens are not tracked"
        await watch.leave()


async def test_a_stream_revoked_during_its_start_ends_at_once():
    async with serving() as (server, store):
        app = App(server)
        handle = server.handle

        async def slow(request, read_body=None):
            response = await handle(request, read_body)
            await revoke(store, "anna")
            return response

        server.handle = slow
        hers = Connection(app, MAPS, query="watch=1", certificate=shown())
        async with asyncio.timeout(60):
            await hers.task


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_other_timeouts_are_not_swallowed(kind):
    async def failing(scope, receive, send):
        raise TimeoutError("the node's own")

    async with serving() as (server, _):
        server.subresources.nodes = lambda _name: failing
        path = "/api/v1/namespaces/default/pods/web/log" if kind == "http" else DOOR
        pod = Connection(App(server), path, kind=kind, certificate=shown())
        with pytest.raises(TimeoutError, match="the node's own"):
            await pod.task
