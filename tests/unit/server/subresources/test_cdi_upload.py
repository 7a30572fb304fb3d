"""Uploads: who is given a token, what it is good for, and where the content goes."""

import pytest
from tests.unit.server.authz.test_node_claims import volume
from tests.unit.server.conftest import CLAIMS

from corral.api.kinds.storage.common import STORAGE_LABEL
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.subresources.cdi_upload import TOKEN_SECONDS
from corral.server.transport.connection import SLOW_BODY
from corral.store import Store

REQUESTS = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests"
NOW = 1_790_000_000.0


class Clock:
    now = NOW

    def __call__(self):
        return self.now


class Target:
    """Takes uploads, and keeps where they went."""

    def __init__(self):
        self.paths = []

    async def __call__(self, scope, receive, send):
        self.paths.append((scope["method"], scope["path"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def served(asker):
    """A server with a claim ``disk``; ``served.target`` takes what is uploaded."""
    store, clock, target = Store.in_memory(), Clock(), Target()
    authenticator = Authenticator({"secret": ADMINISTRATOR})
    server = ApiServer(store, authenticator=authenticator, uploads=target, now=clock)
    ask = asker(server)
    ask.clock, ask.target, ask.app = clock, target, App(server)
    await ask.create("/api/v1/namespaces", "default")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    ask.claim = await ask.create(CLAIMS, "disk", spec=spec)
    yield ask
    await store.close()


async def token(ask, claim="disk"):
    answer = await ask("POST", REQUESTS, request(claim))
    assert answer.status == 201
    return answer["status"]["token"]


def request(claim):
    return {"metadata": {"name": "t"}, "spec": {"pvcName": claim}}


async def test_a_dry_run_gives_no_token(served):
    answer = await served("POST", f"{REQUESTS}?dryRun=All", request("disk"))
    assert (answer.status, answer["status"]["token"]) == (201, "")
    refused = await served("POST", f"{REQUESTS}?dryRun=Some", request("disk"))
    assert refused.status == 422


async def send(ask, bearer, path="/v1beta1/upload", method="POST", **extensions):
    """The status that an upload is answered."""
    headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    scope = {"type": "http", "method": method, "path": path, "query_string": b""}
    said = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def keep(message):
        said.append(message)

    await ask.app({**scope, "headers": headers, "extensions": extensions}, receive, keep)
    return said[0]["status"]


@pytest.mark.parametrize("prefix", ["/v1beta1/", "/v1alpha1/"])
@pytest.mark.parametrize("way", ["upload", "upload-async"])
@pytest.mark.parametrize("method", ["HEAD", "POST"])
async def test_an_upload_with_a_token_is_forwarded(served, prefix, way, method):
    assert await send(served, await token(served), prefix + way, method) == 200
    uid = served.claim["metadata"]["uid"]
    assert served.target.paths == [(method, f"/default/disk/{uid}/{way}")]


@pytest.mark.parametrize("bearer", ["", "secret", "a.b.c"])
async def test_an_upload_without_a_token_is_unauthorized(served, bearer):
    assert await send(served, bearer) == 401
    assert served.target.paths == []


async def test_a_modified_token_is_invalid(served):
    whole = await token(served)
    head, body, signature = whole.split(".")
    assert await send(served, f"{head}.{body[:-2]}AA.{signature}") == 401
    assert await send(served, f"{head}.{body}.{signature[:-2]}AA") == 401


async def test_a_token_expires(served):
    bearer = await token(served)
    served.clock.now += TOKEN_SECONDS - 1
    assert await send(served, bearer) == 200
    served.clock.now += 2
    assert await send(served, bearer) == 401


async def test_a_token_is_invalid_for_a_recreated_claim(served):
    bearer = await token(served)
    await served.patch(f"{CLAIMS}/disk", {"metadata": {"finalizers": None}})
    await served("DELETE", f"{CLAIMS}/disk")
    assert await send(served, bearer) == 404
    await served.create(CLAIMS, "disk", spec=served.claim["spec"])
    assert await send(served, bearer) == 404
    assert served.target.paths == []


async def test_only_an_upload_with_a_valid_token_may_be_slow(served):
    taken = []
    unhurried = {SLOW_BODY: lambda: taken.append("time")}
    assert await send(served, "wrong", **unhurried) == 401
    assert taken == []
    assert await send(served, await token(served), **unhurried) == 200
    assert taken == ["time"]


async def test_an_upload_is_a_post(served):
    assert await send(served, await token(served), method="DELETE") == 405


async def test_a_missing_claim_gets_no_token(served):
    answer = await served("POST", REQUESTS, request("nosuch"))
    assert (answer.status, answer["message"]) == (
        404,
        'persistentvolumeclaims "nosuch" not found',
    )


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_token_requests_are_not_stored(served, method):
    await token(served)
    assert (await served(method, REQUESTS)).status == 405
    assert (await served(method, f"{REQUESTS}/t")).status == 405


async def test_uploads_to_volumes_of_joined_nodes_are_forwarded_there(asker):
    store, here, there = Store.in_memory(), Target(), Target()
    authenticator = Authenticator({"secret": ADMINISTRATOR})
    nodes = {"far": there}.get
    server = ApiServer(store, authenticator=authenticator, uploads=here, nodes=nodes)
    ask = asker(server)
    ask.app = App(server)
    await ask.create("/api/v1/namespaces", "default")
    await ask.create("/api/v1/nodes", "near", labels={STORAGE_LABEL: "s1"})
    await ask.create("/api/v1/nodes", "far", labels={STORAGE_LABEL: "s2"})
    port = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}
    await ask.patch("/api/v1/nodes/far/status", port)
    for name, storage in (("one", "s1"), ("two", "s2")):
        assert (await ask("POST", "/api/v1/persistentvolumes", volume(name, storage))).status == 201
        sizes = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": sizes, "volumeName": name}
        await ask.create(CLAIMS, name, spec=spec)
        assert await send(ask, await token(ask, name)) == 200
    await store.close()
    ((_, path),) = here.paths
    assert path.startswith("/default/one/")
    ((_, path),) = there.paths
    assert path.startswith("/uploads/default/two/")
