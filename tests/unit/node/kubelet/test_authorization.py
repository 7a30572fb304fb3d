"""Who may use a node's API: certificates and tokens, reviewed by the API server, and cached."""

import json
from types import SimpleNamespace

import pytest

from corral.api.errors import Unavailable
from corral.api.images import IMAGES_PATH, VOLUMES_PATH
from corral.api.request import Response
from corral.client.client import Client
from corral.node.kubelet.authorization import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    MAX_CACHED,
    TOKEN_SECONDS,
    KubeletAuthorization,
    subresource_of,
)

USERS = {"good": {"username": "ann", "groups": ["ops"]}}


class Reviewer:
    """An API server that only reviews: ``allowed`` decides, given a SubjectAccessReview's spec."""

    def __init__(self):
        self.allowed = lambda _spec: True
        self.reviews = []
        self.away = False

    async def send(self, request):
        if self.away:
            raise Unavailable("the API server does not answer")
        document = json.loads(request.body)
        spec = document["spec"]
        self.reviews.append(spec)
        if request.path.endswith("/tokenreviews"):
            user = USERS.get(spec["token"])
            status = {"authenticated": user is not None, **({"user": user} if user else {})}
        else:
            status = {"allowed": self.allowed(spec)}
        return Response(status=201, body=json.dumps(document | {"status": status}).encode())


class Node:
    """A node's API behind its authorization, at a time that tests set."""

    def __init__(self):
        self.now = 1000.0
        self.reviewer = Reviewer()
        self._app = KubeletAuthorization(
            self._serve, Client(self.reviewer), "node1", now=lambda: self.now
        )
        self.served = []
        self.users = []

    async def _serve(self, scope, _receive, send):
        self.served.append(scope["path"])
        self.users.append(scope["state"]["user"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})

    async def ask(self, path="/pods", *, method="GET", user="", token="", **certificate):
        """Send a request; answers status and body."""
        scope = {"type": "http", "method": method, "path": path, "headers": [], "state": {}}
        if user:
            times = {"begins": 0.0, "ends": 2000.0, "groups": ("crew",)}
            scope["state"]["certificate"] = SimpleNamespace(name=user, **times | certificate)
        if token:
            scope["headers"] = [(b"authorization", f"Bearer {token}".encode())]
        sent = []

        async def send(message):
            sent.append(message)

        await self._app(scope, None, send)
        return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]).decode()


@pytest.fixture
def node():
    return Node()


async def test_without_a_credential_nothing_but_health_is_served(node):
    status, body = await node.ask()
    assert status == 401
    assert json.loads(body)["reason"] == "Unauthorized"
    assert await node.ask("/healthz") == (200, "ok")
    assert not node.served
    assert not node.reviewer.reviews


async def test_a_certificate_is_reviewed_with_its_groups(node):
    assert (await node.ask("/containerLogs/a/b/c", user="ann"))[0] == 200
    (spec,) = node.reviewer.reviews
    assert (spec["user"], spec["groups"]) == ("ann", ["crew", "system:authenticated"])
    assert spec["resourceAttributes"] == {
        "verb": "get", "version": "v1", "resource": "nodes", "subresource": "log", "name": "node1",
    }  # fmt: skip


@pytest.mark.parametrize("times", [{"begins": 1000.5}, {"ends": 1000.0}])
async def test_a_certificate_outside_its_time_is_refused(node, times):
    assert (await node.ask(user="ann", **times))[0] == 401


async def test_a_token_is_reviewed_and_its_user_cached(node):
    for _ in range(2):
        assert (await node.ask(token="good"))[0] == 200
    assert len(node.reviewer.reviews) == 2, "the token's, and the user's"
    node.now += TOKEN_SECONDS
    assert (await node.ask(token="good"))[0] == 200
    assert [spec for spec in node.reviewer.reviews if "token" in spec] == 2 * [{"token": "good"}]


async def test_an_invalid_token_is_reviewed_each_time(node):
    for _ in range(2):
        assert (await node.ask(token="bad"))[0] == 401
    assert node.reviewer.reviews == 2 * [{"token": "bad"}]


async def test_a_refusal_names_user_verb_and_resource(node):
    node.reviewer.allowed = lambda _: False
    status, body = await node.ask("/exec/a/b/c", method="POST", user="eve")
    assert status == 403
    expected = "Forbidden (user=eve, verb=create, resource=nodes, subresource=proxy)"
    assert json.loads(body)["message"] == expected
    assert not node.served


@pytest.mark.parametrize(("allowed", "seconds"), [(True, ALLOWED_SECONDS), (False, DENIED_SECONDS)])
async def test_decisions_are_cached_for_a_while(node, allowed, seconds):
    node.reviewer.allowed = lambda _: allowed
    await node.ask(user="ann")
    node.now += seconds - 1
    await node.ask(user="ann")
    assert len(node.reviewer.reviews) == 1
    node.now += 1
    await node.ask(user="ann")
    assert len(node.reviewer.reviews) == 2


async def test_the_cache_is_bounded(node):
    for number in range(MAX_CACHED + 1):
        await node.ask(user=f"user{number}")
    await node.ask(user="user1")
    assert len(node.reviewer.reviews) == MAX_CACHED + 1
    await node.ask(user="user0")
    assert len(node.reviewer.reviews) == MAX_CACHED + 2


@pytest.mark.parametrize("path", [IMAGES_PATH, VOLUMES_PATH])
async def test_images_and_volumes_are_paths_of_their_own(node, path):
    node.reviewer.allowed = lambda spec: "nonResourceAttributes" in spec
    assert (await node.ask(path, user="system:node:node2"))[0] == 200
    assert node.reviewer.reviews[0]["nonResourceAttributes"] == {"verb": "get", "path": path}
    assert node.users == ["system:node:node2"]
    status, body = await node.ask(f"{path}/../exec/a/b/c", user="system:node:node2")
    assert status == 403
    assert "subresource=proxy" in body


async def test_without_the_api_server_undecided_requests_fail(node):
    await node.ask(user="ann")
    node.reviewer.away = True
    assert (await node.ask(user="ann"))[0] == 200
    assert (await node.ask(user="bob"))[0] == 503


@pytest.mark.parametrize(
    ("path", "subresource"),
    [
        ("/stats/summary", "stats"),
        ("/metrics", "metrics"),
        ("/metrics/resource", "metrics"),
        ("/metricsx", "proxy"),
        ("/logs/", "log"),
        ("/portForward/a/b", "proxy"),
        ("/", "proxy"),
    ],
)
def test_paths_belong_to_the_kubelets_subresources(path, subresource):
    assert subresource_of(path) == subresource
