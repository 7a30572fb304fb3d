"""Image names are read as container runtimes read them, and nothing else is let through."""

import pytest
from hypothesis import given, strategies as st

from corral.node.images.error import ImageError
from corral.node.images.reference import is_loopback, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("cirros", "docker.io/library/cirros:latest"),
        ("cirros:0.6", "docker.io/library/cirros:0.6"),
        ("kubevirt/cirros-demo", "docker.io/kubevirt/cirros-demo:latest"),
        ("index.docker.io/cirros", "docker.io/library/cirros:latest"),
        ("quay.io/kubevirt/cirros:v1", "quay.io/kubevirt/cirros:v1"),
        ("registry:5000/a/b", "registry:5000/a/b:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        (f"a@{DIGEST}", f"docker.io/library/a@{DIGEST}"),
        (f"r.io/a:1@{DIGEST}", f"r.io/a:1@{DIGEST}"),
        ("r.io/a__b/c--d.e_f:T_.-", "r.io/a__b/c--d.e_f:T_.-"),
    ],
)  # fmt: skip
def test_names_get_default_registry_and_tag(text, complete):
    assert str(parse(text)) == complete
    assert parse(complete) == parse(text), "completing twice changes nothing"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "/", "a b", "A", "r.io/A", "a:", "a@", ":@", f"a:@{DIGEST}", "a@sha256:abc",
        f"a@{DIGEST.upper()}", "a@md5:" + "0" * 32, "../etc/passwd", "r.io/../a", "r.io//a", "a/",
        "-a", "a-", "a___b", "a..b", "https://r.io/a", "r.io:x/a", "r.io/a?b", "r.io/a#b",
        "user@r.io/a", "a:b:c", "r.io/a\n", "a\0", "a:" + "t" * 129, "r.io/" + "a" * 255,
        "a" * 100_000, "[::1/a", "é",
    ],
)  # fmt: skip
def test_invalid_names_are_rejected(text):
    with pytest.raises(ImageError, match="couldn't parse image name") as caught:
        parse(text)
    assert caught.value.reason == "InvalidImageName"
    assert len(str(caught.value)) < 2500


def test_invalid_names_have_a_reason():
    with pytest.raises(ImageError, match="'library/Cirros' must be lowercase"):
        parse("Cirros")


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_rejected(text):
    try:
        reference = parse(text)
    except ImageError:
        return
    assert parse(str(reference)) == reference
    assert not set(str(reference)) & set(" \n\0?#%\\")
    assert ".." not in str(reference).split("/")


def test_a_digest_precedes_a_tag():
    assert parse(f"a:1@{DIGEST}").version == DIGEST
    assert parse("a:1").version == "1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
     ("localhost.evil.example", False), ("127.0.0.1.example", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_local_registries_are_recognized_by_address(host, expected):
    assert is_loopback(host) is expected
