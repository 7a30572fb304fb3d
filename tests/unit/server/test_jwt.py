"""Tokens: what is signed is read again, and nothing else is."""

import base64
import json

import msgspec
import pytest

from corral.server import jwt

KEY = b"k" * 32


class Claims(msgspec.Struct):
    sub: str
    exp: int


TOKEN = jwt.sign(Claims("system:serviceaccount:a:b", 7), KEY)


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_what_is_signed_is_read_again():
    assert jwt.claims_of(TOKEN, KEY, Claims) == Claims("system:serviceaccount:a:b", 7)


def test_it_is_the_form_that_everybody_reads():
    head, body, _ = TOKEN.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(base64.urlsafe_b64decode(body + "==")) == {
        "sub": "system:serviceaccount:a:b",
        "exp": 7,
    }


def test_the_example_of_the_specification_is_signed_as_there():
    """RFC 7515, appendix A.1: another head, hence nothing that is ours, but the same signature."""
    key = base64.urlsafe_b64decode(
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow=="
    )
    token = (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        "cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )
    signed, _, signature = token.rpartition(".")
    assert jwt._signature(signed, key) == signature
    assert jwt.claims_of(token, key, dict) is None


HEAD, BODY, SIGNATURE = TOKEN.split(".")
UNSIGNED = encoded(b'{"alg":"none","typ":"JWT"}')


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        BODY,
        f"{HEAD}.{BODY}.",
        f"{HEAD}.{BODY}",
        f"{UNSIGNED}.{BODY}.",
        f"{UNSIGNED}.{BODY}.{SIGNATURE}",
        f"{HEAD}.{encoded(b'{}')}.{SIGNATURE}",
        f"{HEAD}.{BODY}.{SIGNATURE}=",
        f"{TOKEN}.{SIGNATURE}",
        TOKEN[:-1],
        "\N{COW}." + TOKEN,
        "\ud800.b.c",
        jwt.sign(Claims("x", 1), b"another key"),
    ],
)
def test_what_was_not_signed_is_nobodys(token):
    assert jwt.claims_of(token, KEY, Claims) is None


@pytest.mark.parametrize("body", [b"{}", b"[", b"\xff", b'{"sub":1,"exp":"x"}', b'{"exp":1e400}'])
def test_what_is_signed_but_of_another_form_is_nobodys(body):
    signed = f"{HEAD}.{encoded(body)}"
    assert jwt.claims_of(f"{signed}.{jwt._signature(signed, KEY)}", KEY, Claims) is None
