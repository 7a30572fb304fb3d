"""Pull secrets are read, and given to the registries they are meant for only."""

import base64
import json

import pytest

from corral.node.images.credentials import Credential, from_secret, matching
from corral.node.images.error import ImageError
from corral.node.images.reference import parse


def config(**auths):
    return json.dumps({"auths": auths}).encode()


def auth(text):
    return base64.b64encode(text.encode()).decode()


def test_a_secret_created_by_kubectl():
    entry = {"username": "u", "password": "p", "email": "e", "auth": auth("u:p")}
    (found,) = from_secret("s", {".dockerconfigjson": config(**{"https://r.io/v2/": entry})})
    assert found == Credential("r.io", "u", "p")


def test_passwords_may_have_colons_and_are_not_logged():
    (found,) = from_secret("s", {".dockerconfigjson": config(**{"r.io": {"auth": auth("u:a:b")}})})
    assert found.password == "a:b"
    assert "a:b" not in repr(found)


def test_entries_without_a_name_are_left_out():
    auths = config(**{"r.io": {}, "s.io": {"identitytoken": "x"}, "t.io": {"auth": auth("u:p")}})
    assert from_secret("s", {".dockerconfigjson": auths}) == (Credential("t.io", "u", "p"),)


def test_the_older_form():
    data = {".dockercfg": json.dumps({"r.io": {"username": "u", "password": "p"}}).encode()}
    assert from_secret("s", data) == (Credential("r.io", "u", "p"),)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"password": b"x"},
        {".dockerconfigjson": b"secret{"},
        {".dockerconfigjson": b'{"auths": []}'},
        {".dockerconfigjson": config(**{"r.io": {"auth": "se!cret"}})},
        {".dockerconfigjson": config(**{"r.io": {"auth": base64.b64encode(b"\xff").decode()}})},
    ],
)
def test_an_invalid_pull_secret_is_named_and_not_quoted(data):
    with pytest.raises(ImageError, match="pull secret 'mine' holds no registry cred") as caught:
        from_secret("mine", data)
    assert "secret{" not in str(caught.value)
    assert "se!cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("pattern", "image", "fits"),
    [
        ("r.io", "r.io/a", True),
        ("r.io", "r.io:5000/a", False),
        ("r.io:5000", "r.io:5000/a", True),
        ("*.r.io", "x.r.io/a", True),
        ("*.r.io", "x.y.r.io/a", False),
        ("*.io", "r.io/a", True),
        ("r.io/team", "r.io/team/a", True),
        ("r.io/team", "r.io/teams/a", False),
        ("https://index.docker.io/v1/", "cirros", True),
        ("docker.io", "user/a", True),
        ("evil.io", "docker.io/user/a", False),
    ],
)
def test_a_credential_is_for_some_registries(pattern, image, fits):
    assert bool(matching([Credential(pattern, "u", "p")], parse(image))) is fits


def test_the_most_specific_credential_comes_first():
    names = ["r.io", "r.io/team/a", "r.io/team"]
    found = matching([Credential(each, "u", "p") for each in names], parse("r.io/team/a"))
    assert [each.registry for each in found] == ["r.io/team/a", "r.io/team", "r.io"]
