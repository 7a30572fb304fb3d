"""Sign-in of the page: codes, tokens, and sign-out."""

import json

import pytest
from tests.unit.server.conftest import MAPS, Asker

from corral.api.errors import Unauthorized
from corral.api.request import Request
from corral.api.revocation import USERS
from corral.server.dashboard.sign_in import MAX_BODY_BYTES, SESSION, SIGN_IN


class Token(Asker):
    """Asks with a bearer token, or with none."""

    def __init__(self, server, token=""):
        super().__init__(server)
        self.shown = {}
        self.token = token

    async def raw(self, method, path, body=None, headers=None):
        shown = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return await super().raw(method, path, body, {**(headers or {}), **shown})


@pytest.fixture
def stranger(ask):
    return Token(ask.server)


async def code_of(outside):
    answer = await outside("POST", SIGN_IN)
    assert answer.status == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer["code"]


async def test_a_code_becomes_a_token_of_the_same_user(outside, stranger):
    code = await code_of(outside)
    answer = await stranger("POST", SESSION, {"code": code})
    assert answer.status == 201
    assert answer["user"]["username"] == outside.user.name
    assert set(outside.user.groups) <= set(answer["user"]["groups"])
    page = Token(outside.server, answer["token"])
    assert (await page("GET", MAPS)).status == 200
    again = await stranger("POST", SESSION, {"code": code})
    assert (again.status, again["reason"]) == (401, "Unauthorized")
    assert "run corral dashboard again" in again["message"]


async def test_sign_out_ends_the_token(outside, stranger):
    token = (await stranger("POST", SESSION, {"code": await code_of(outside)}))["token"]
    page = Token(outside.server, token)
    assert (await page("DELETE", SESSION)).status == 204
    assert (await page("GET", MAPS)).status == 401


async def test_strangers_get_no_code(stranger):
    assert (await stranger("POST", SIGN_IN)).status == 401
    assert (await stranger("POST", SESSION, {"code": "guessed"})).status == 401
    assert (await stranger("POST", SESSION, b"no json")).status == 400
    assert (await stranger("PUT", SESSION, {"code": ""})).status == 405


async def test_impersonation_gets_no_code(outside):
    answer = await outside("POST", SIGN_IN, headers={"impersonate-user": "bob"})
    assert answer.status == 403


async def test_pages_of_other_sites_cannot_sign_in(outside):
    elsewhere = {"origin": "https://evil.example", "host": "127.0.0.1:6443"}
    for path in (SIGN_IN, SESSION):
        assert (await outside("POST", path, {"code": "x"}, elsewhere)).status == 403


@pytest.mark.parametrize("length", ["", str(MAX_BODY_BYTES + 1), "chunked"])
async def test_large_bodies_of_strangers_are_not_read(ask, length):
    async def read():
        pytest.fail("the body is read")

    request = Request(method="POST", path=SESSION, headers={"content-length": length})
    response = await ask.server.handle(request, read)
    assert (response.status, json.loads(response.body)["code"]) == (413, 413)


async def test_a_session_of_a_revoked_user_is_refused(ask, outside, stranger):
    token = (await stranger("POST", SESSION, {"code": await code_of(outside)}))["token"]
    times = {outside.user.name: "2999-01-01T00:00:00Z"}
    name = {"name": "revoked-certificates"}
    revoked = {"metadata": name, "data": {USERS: json.dumps(times)}}
    assert (
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    ).status == 201
    path = "/api/v1/namespaces/kube-system/configmaps"
    assert (await ask("POST", path, revoked)).status == 201
    with pytest.raises(Unauthorized):
        outside.server.authenticator.user(
            Request(method="GET", path="/", headers={"authorization": f"Bearer {token}"})
        )
