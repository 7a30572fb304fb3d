"""Tokens: what is signed is read again, and nothing else is."""

import base64
import hmac
import json

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from corral.pki import SigningKey
from corral.server.authn import jwt

KEY = SigningKey()


class Claims(msgspec.Struct):
    sub: str
    exp: int


TOKEN = jwt.sign(Claims("system:serviceaccount:a:b", 7), KEY)


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_signed_claims_can_be_read():
    assert jwt.claims_of(TOKEN, KEY, Claims) == Claims("system:serviceaccount:a:b", 7)


def test_tokens_are_standard_jwts():
    head, body, _ = TOKEN.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "ES256", "kid": KEY.name}
    assert json.loads(base64.urlsafe_b64decode(body + "==")) == {
        "sub": "system:serviceaccount:a:b",
        "exp": 7,
    }


def test_tokens_can_be_verified_with_the_public_key():
    jwk = KEY.public
    x, y = (int.from_bytes(base64.urlsafe_b64decode(jwk[name] + "=="), "big") for name in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    signed, _, signature = TOKEN.rpartition(".")
    both = base64.urlsafe_b64decode(signature + "==")
    r, s = int.from_bytes(both[:32], "big"), int.from_bytes(both[32:], "big")
    public.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))


HEAD, BODY, SIGNATURE = TOKEN.split(".")
UNSIGNED = encoded(b'{"alg":"none","typ":"JWT"}')
SYMMETRIC = encoded(b'{"alg":"HS256","typ":"JWT"}')


def with_public_key(signed):
    """Signed with what everybody knows, as those try who hope that a head is believed."""
    return encoded(hmac.digest(json.dumps(KEY.public).encode(), signed.encode(), "sha256"))


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
        f"{SYMMETRIC}.{BODY}.{with_public_key(f'{SYMMETRIC}.{BODY}')}",
        f"{HEAD}.{encoded(b'{}')}.{SIGNATURE}",
        f"{HEAD}.{BODY}.{encoded(bytes(64))}",
        f"{HEAD}.{BODY}.{encoded(b'x' * 63)}",
        f"{HEAD}.{BODY}.{SIGNATURE[:-1]}*",
        f"{HEAD}.{BODY}.{SIGNATURE}=",
        f"{TOKEN}.{SIGNATURE}",
        TOKEN[:-1],
        "\N{COW}." + TOKEN,
        "\ud800.b.c",
        jwt.sign(Claims("x", 1), SigningKey()),
    ],
)
def test_tokens_with_a_wrong_signature_are_invalid(token):
    assert jwt.claims_of(token, KEY, Claims) is None


@pytest.mark.parametrize("body", [b"{}", b"[", b"\xff", b'{"sub":1,"exp":"x"}', b'{"exp":1e400}'])
def test_signed_tokens_of_another_form_are_invalid(body):
    signed = f"{HEAD}.{encoded(body)}"
    signature = encoded(KEY.sign(signed.encode()))
    assert jwt.claims_of(f"{signed}.{signature}", KEY, Claims) is None
