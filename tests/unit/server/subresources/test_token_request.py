"""Tokens of ServiceAccounts: requests, audiences and lifetimes."""

import base64
import json

import pytest

from corral.api.request import Request, User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.daemon.rbac import reconcile_rbac
from corral.pki import SigningKey
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.authn.service_accounts import ISSUER, flow_name
from corral.store import Store

SPACE = "/api/v1/namespaces/default"
ACCOUNTS = f"{SPACE}/serviceaccounts"
TOKEN = f"{ACCOUNTS}/robot/token"
NOW = 1_790_000_000.0

KEY = SigningKey()


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
async def served(asker):
    """A server with the ServiceAccount ``robot``; ``served.clock.now`` is its time."""
    store, clock = Store.in_memory(), Clock()
    authenticator = Authenticator({"secret": ADMINISTRATOR})
    server = ApiServer(store, authenticator=authenticator, account_key=KEY, now=clock)
    ask = asker(server)
    ask.clock = clock
    await ask.create("/api/v1/namespaces", "default")
    ask.account = await ask.create(ACCOUNTS, "robot")
    await reconcile_rbac(Client(InProcess(server.handle, ADMINISTRATOR)))
    yield ask
    await store.close()


def token_request(**spec):
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


async def token(served, **spec):
    answer = await served("POST", TOKEN, token_request(**spec))
    assert answer.status == 201, answer.text
    return answer["status"]["token"]


async def status(served, bearer, path="/api", method="GET"):
    request = Request(method=method, path=path, headers={"authorization": f"Bearer {bearer}"})
    return (await served.server.handle(request)).status


def claims(bearer):
    return json.loads(base64.urlsafe_b64decode(bearer.split(".")[1] + "=="))


async def test_a_token_request_has_kubernetes_response(served):
    nulls = {"audiences": None, "expirationSeconds": None, "boundObjectRef": None}
    answer = await served("POST", TOKEN, token_request(**nulls))
    assert answer.status == 201
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert answer["metadata"]["name"] == "robot"
    assert answer["spec"] == {
        "audiences": [ISSUER],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    assert answer["status"]["expirationTimestamp"] == "2026-09-21T15:13:20Z"
    said = claims(answer["status"]["token"])
    assert said.pop("jti")
    assert said == {
        "aud": [ISSUER],
        "exp": int(NOW) + 3600,
        "iat": int(NOW),
        "iss": ISSUER,
        "nbf": int(NOW),
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "robot", "uid": served.account["metadata"]["uid"]},
        },
    }


async def test_a_service_account_can_read_discovery_only(served):
    bearer = await token(served)
    assert await status(served, bearer) == 200
    assert await status(served, bearer, f"{SPACE}/configmaps") == 403
    assert await status(served, bearer, TOKEN, "POST") == 403
    headers = {"authorization": f"Bearer {bearer}"}
    path = f"{SPACE}/secrets"
    refused = await served.server.handle(Request(method="GET", path=path, headers=headers))
    assert b'User \\"system:serviceaccount:default:robot\\" cannot list' in refused.body


async def test_service_accounts_of_a_namespace_share_one_flow(served):
    """Who may make accounts would have as many shares as they like."""
    headers = {"authorization": f"Bearer {await token(served)}"}
    request = Request(method="GET", path="/api", headers=headers)
    assert (await served.server.handle(request)).status == 200
    assert request.sender == "system:serviceaccounts:default"


@pytest.mark.parametrize("name", ["bob", "system:node:alpha", "system:serviceaccount:torn"])
def test_other_users_have_their_own_flow(name):
    assert flow_name(User(name=name)) == name


@pytest.mark.parametrize("namespace", ["kubevirt", "kube-system"])
async def test_a_token_in_a_components_namespace_grants_no_rights_of_components(served, namespace):
    await served.create("/api/v1/namespaces", namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await served.create(accounts, "default")
    answer = await served("POST", f"{accounts}/default/token", token_request())
    bearer = answer["status"]["token"]
    assert await status(served, bearer) == 200
    for path in ("/api/v1/secrets", "/api/v1/pods", "/apis/kubevirt.io/v1/virtualmachines"):
        assert await status(served, bearer, path) == 403


async def test_a_token_expires(served):
    bearer = await token(served, expirationSeconds=600)
    served.clock.now += 599
    assert await status(served, bearer) == 200
    served.clock.now += 1
    assert await status(served, bearer) == 401
    served.clock.now = NOW - 1
    assert await status(served, bearer) == 401


async def test_a_token_is_invalid_after_the_deletion_of_its_account(served):
    bearer = await token(served)
    await served("DELETE", f"{ACCOUNTS}/robot")
    assert await status(served, bearer) == 401
    await served.create(ACCOUNTS, "robot")
    assert await status(served, bearer) == 401  # another one of its name


async def test_a_token_of_another_audience_is_unauthorized(served):
    bearer = await token(served, audiences=["vault"])
    assert claims(bearer)["aud"] == ["vault"]
    assert await status(served, bearer) == 401
    assert await status(served, await token(served, audiences=["vault", ISSUER])) == 200


async def test_a_token_of_another_server_is_unauthorized(served, asker):
    store = Store.in_memory()
    other = ApiServer(store, now=served.clock)
    ask = asker(other)
    await ask.create("/api/v1/namespaces", "default")
    await ask.create(ACCOUNTS, "robot")
    bearer = await token(ask)
    assert await status(served, bearer) == 401
    assert await status(served, "x" * 100_000) == 401
    await store.close()


def pod(**spec):
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def test_a_bound_token_is_invalid_after_the_deletion_of_its_object(served):
    made = await served("POST", f"{SPACE}/pods", pod(serviceAccountName="robot"))
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made.metadata["uid"]}
    bearer = await token(served, boundObjectRef=reference)
    said = claims(bearer)["kubernetes.io"]["pod"]
    assert said == {"name": "p", "uid": made.metadata["uid"]}
    assert await status(served, bearer) == 200
    await served("DELETE", f"{SPACE}/pods/p?gracePeriodSeconds=0")
    assert await status(served, bearer) == 401


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "none"}, 404, 'pods "none" not found'),
        (
            {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"},
            400,
            'cannot bind token for serviceaccount "robot" to type v1, Kind=ConfigMap',
        ),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "p"},
            400,
            "to pod running with different serviceaccount name.",
        ),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "other"},
            409,
            "the UID in the bound object reference (other) does not match the UID in record",
        ),
    ],
)
async def test_invalid_bound_objects_are_rejected(served, reference, code, message):
    await served("POST", f"{SPACE}/pods", pod(serviceAccountName="another"))
    refused = await served("POST", TOKEN, token_request(boundObjectRef=reference))
    assert refused.status == code
    assert message in refused["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"expirationSeconds": 60},
            (
                "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than "
                "10 minutes"
            ),
        ),
        (
            {"expirationSeconds": 2**32 + 1},
            (
                "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration "
                "larger than 2^32 seconds"
            ),
        ),
        (
            {"audiences": ["a"] * 17},
            "spec.audiences: Too many: 17: must have at most 16 items",
        ),
        (
            {"audiences": ["a", ""]},
            'spec.audiences[1]: Invalid value: "": must be 1 to 256 characters',
        ),
    ],
)
async def test_invalid_token_requests_are_rejected(served, spec, message):
    refused = await served("POST", TOKEN, token_request(**spec))
    expected = f'TokenRequest.authentication.k8s.io "" is invalid: {message}'
    assert (refused.status, refused["message"]) == (422, expected)


async def test_malformed_token_requests_are_rejected(served):
    refused = await served("POST", f"{ACCOUNTS}/nobody/token", token_request())
    assert (refused.status, refused["message"]) == (404, 'serviceaccounts "nobody" not found')
    assert (await served("POST", TOKEN, {"kind": "Pod", "apiVersion": "v1"})).status == 400
    assert (await served("POST", TOKEN, token_request(audiences=3))).status == 400
    assert (await served("GET", TOKEN)).status == 405


async def test_kind_and_version_of_a_request_are_optional(served):
    answer = await served("POST", TOKEN, {"spec": {"expirationSeconds": 700}})
    assert (answer.status, answer["spec"]["expirationSeconds"]) == (201, 700)


async def test_a_dry_run_gives_no_token(served):
    answer = await served("POST", f"{TOKEN}?dryRun=All", token_request())
    assert (answer.status, answer["status"]["token"]) == (201, "")
