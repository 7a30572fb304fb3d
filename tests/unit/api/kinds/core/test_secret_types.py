"""Secrets of types that Kubernetes knows hold what those ask for."""

import base64

import pytest

from corral.api.kinds.core.kinds import SECRET

ANY = ("utf-8", "surrogateescape")
"""How texts of these tests hold bytes that are none: ``\\udcff`` is 0xff."""


def messages(kind, annotations=None, **data):
    document = secret(kind, annotations, **data)
    return [f"{c.field}: {c.message}" for c in SECRET.validate(document, None, "").causes]


def secret(kind, annotations=None, **data):
    encoded = {name: base64.b64encode(value.encode(*ANY)).decode() for name, value in data.items()}
    return {"metadata": {"annotations": annotations}, "type": kind, "data": encoded}


@pytest.mark.parametrize(
    ("kind", "data", "wrong"),
    [
        ("Opaque", {}, []),
        ("example.com/own", {}, []),
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, []),
        ("kubernetes.io/tls", {"tls.crt": ""}, ["data[tls.key]: Required value"]),
        ("kubernetes.io/ssh-auth", {}, ["data[ssh-privatekey]: Required value"]),
        (
            "kubernetes.io/ssh-auth",
            {"ssh-privatekey": ""},
            ["data[ssh-privatekey]: Required value"],
        ),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": "x"}, []),
        ("kubernetes.io/basic-auth", {"password": "x"}, []),
        (
            "kubernetes.io/basic-auth",
            {},
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": '{"auths": {}}'}, []),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "null"}, []),
        ("kubernetes.io/dockerconfigjson", {}, ["data[.dockerconfigjson]: Required value"]),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]: Required value"]),
        (
            "kubernetes.io/service-account-token",
            {},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
    ],
)
def test_secret_types_require_their_keys(kind, data, wrong):
    assert messages(kind, **data) == wrong


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "x", '{"auths": {"x": "\udcff"}}', '{"a":' + "[" * 5000]
)
def test_docker_configs_must_be_json(content):
    (message,) = messages("kubernetes.io/dockercfg", **{".dockercfg": content})
    assert message.startswith(
        'data[.dockercfg]: Invalid value: "<secret contents redacted>": is no JSON object: '
    )


def test_service_account_tokens_require_the_account_annotation():
    whose = {"kubernetes.io/service-account.name": "shepherd"}
    assert messages("kubernetes.io/service-account-token", whose) == []


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("kubernetes.io/tls", {"tls.crt": "x"}),
        ("kubernetes.io/dockercfg", {".dockercfg": "x"}),
        ("kubernetes.io/service-account-token", {}),
    ],
)
def test_invalid_secrets_of_earlier_versions_can_be_updated(kind, data):
    old = secret(kind, **data)
    old["metadata"]["finalizers"] = ["example.com/mine"]
    assert SECRET.validate(secret(kind, {"a": "b"}, **data), old, "").causes == []
    assert SECRET.validate(secret(kind, **data, more="x"), old, "").causes


def test_the_account_of_a_token_secret_is_immutable():
    kind = "kubernetes.io/service-account-token"
    old = secret(kind, {"kubernetes.io/service-account.name": "shepherd"})
    assert [cause.field for cause in SECRET.validate(secret(kind), old, "").causes] == [
        "metadata.annotations[kubernetes.io/service-account.name]"
    ]
