"""Bearer tokens among the subprotocols of a websocket, and pages of other sites."""

import base64

import pytest

from corral.api.errors import Unauthorized
from corral.server.authn.websocket_credentials import (
    BEARER,
    is_of_another_site,
    with_authorization,
)


def bearer(token):
    return BEARER + base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def scope(*offered, headers=()):
    protocols = (b"sec-websocket-protocol", ", ".join(offered).encode())
    return {"type": "websocket", "subprotocols": list(offered), "headers": [protocols, *headers]}


def test_a_token_becomes_a_header_and_leaves_the_subprotocols():
    found = with_authorization(scope("json.k8s.io", bearer(b"se-cr_et+/?")))
    assert found["subprotocols"] == ["json.k8s.io"]
    assert found["headers"] == [
        (b"sec-websocket-protocol", b"json.k8s.io"),
        (b"authorization", b"Bearer se-cr_et+/?"),
    ]


def test_other_websockets_are_left_as_they_are():
    plain = scope("plain.kubevirt.io")
    assert with_authorization(plain) is plain


def test_a_header_counts_before_a_subprotocol_which_is_not_forwarded():
    found = with_authorization(
        scope("json.k8s.io", bearer(b"other"), headers=[(b"authorization", b"Bearer mine")])
    )
    assert (b"authorization", b"Bearer mine") in found["headers"]
    assert len(found["headers"]) == 2
    assert found["subprotocols"] == ["json.k8s.io"]


@pytest.mark.parametrize(
    ("offered", "fault"),
    [
        ([bearer(b"one")], "missing additional subprotocols"),
        (["x", bearer(b"one"), bearer(b"two")], "multiple bearer token protocols"),
        (["x", BEARER + "!!"], "invalid base64url"),
        (["x", BEARER + "a"], "invalid base64url"),
        (["x", bearer(b"\xff\xfe")], "invalid base64url"),
        (["x", BEARER], "is empty"),
        (["x", bearer(b"a\r\nx-remote-user: admin")], "has blanks"),
    ],
)
def test_unreadable_tokens_are_unauthorized(offered, fault):
    with pytest.raises(Unauthorized, match=fault):
        with_authorization(scope(*offered))


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({"host": "127.0.0.1:6443"}, False),
        ({"host": "127.0.0.1:6443", "origin": "https://127.0.0.1:6443"}, False),
        ({"host": "Corral.Example", "origin": "https://corral.example"}, False),
        ({"host": "127.0.0.1:6443", "origin": "https://evil.example"}, True),
        ({"host": "127.0.0.1:6443", "origin": "https://127.0.0.1:8443"}, True),
        ({"host": "127.0.0.1:6443", "origin": "null"}, True),
        ({"host": "h", "origin": "http://127.0.0.1:8001", "x-forwarded-for": "127.0.0.1"}, False),
    ],
)
def test_pages_of_other_hosts_are_recognized(headers, foreign):
    assert is_of_another_site(headers) == foreign
