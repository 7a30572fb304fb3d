"""Secrets of types that Kubernetes knows hold what those ask for."""

import base64

import pytest

from corral.api.kinds.core import SECRET


def told(kind, annotations=None, **data):
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    document = {"metadata": {"annotations": annotations}, "type": kind, "data": encoded}
    return [f"{c.field}: {c.message}" for c in SECRET.validate(document, None, "").causes]


@pytest.mark.parametrize(
    ("kind", "data", "wrong"),
    [
        ("Opaque", {}, []),
        ("example.com/own", {}, []),
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, []),
        ("kubernetes.io/tls", {"tls.crt": ""}, ["data[tls.key]: Required value"]),
        ("kubernetes.io/ssh-auth", {}, ["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/basic-auth", {"password": "x"}, []),
        (
            "kubernetes.io/basic-auth",
            {},
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": '{"auths": {}}'}, []),
        ("kubernetes.io/dockerconfigjson", {}, ["data[.dockerconfigjson]: Required value"]),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]: Required value"]),
        (
            "kubernetes.io/service-account-token",
            {},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
    ],
)
def test_a_type_asks_for_some_data(kind, data, wrong):
    assert told(kind, **data) == wrong


@pytest.mark.parametrize("content", ["", "[]", "{", "x"])
def test_logins_to_registries_are_json(content):
    (message,) = told("kubernetes.io/dockercfg", **{".dockercfg": content})
    assert message.startswith(
        'data[.dockercfg]: Invalid value: "<secret contents redacted>": is no JSON object: '
    )


def test_a_token_says_whose_it_is():
    whose = {"kubernetes.io/service-account.name": "shepherd"}
    assert told("kubernetes.io/service-account-token", whose) == []
