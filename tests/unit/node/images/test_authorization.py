"""Challenges of registries are read, and none can keep us busy."""

import pytest

from corral.node.images import authorization


@pytest.mark.parametrize(
    ("header", "scheme", "parameters"),
    [
        ('Bearer realm="https://a/t",service="s",scope="r:x:pull,push"', "bearer",
         {"realm": "https://a/t", "service": "s", "scope": "r:x:pull,push"}),
        ("BASIC realm=x", "basic", {"realm": "x"}),
        (r'Bearer realm="a\"b"', "bearer", {"realm": 'a"b'}),
        ("", "", {}),
        ("nonsense", "nonsense", {}),
        ('Bearer realm="' + "x" * 100_000, "bearer", {}),
    ],
)  # fmt: skip
def test_challenges(header, scheme, parameters):
    challenge = authorization.parse_challenge(header)
    assert (challenge.scheme, challenge.parameters) == (scheme, parameters)


def test_basic_credentials_follow_rfc_7617():
    sent = authorization.basic("Aladdin", "open sesame")
    assert sent == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert authorization.basic("ü", "ß") == "Basic w7w6w58="
