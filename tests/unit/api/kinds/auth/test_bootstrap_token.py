"""Tests of bootstrap tokens as Secrets hold them."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from corral.api.kinds.auth.bootstrap_token import NODE_GROUP, new_token, parse, read

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def encoded(data):
    return {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}


def secret_of(token, **changed):
    """The name and the data of a token's Secret as the API server stores them."""
    document = token.document()
    return document["metadata"]["name"], encoded(document["stringData"] | changed)


def test_a_token_can_be_parsed():
    made = new_token(NOW, "host 2")
    assert read(*secret_of(made)) == made
    assert parse(made.value) == (made.id, made.secret)
    assert made.groups == (NODE_GROUP,)


def test_a_token_authenticates_until_it_expires():
    made = new_token(NOW)
    assert not made.has_expired(NOW - timedelta(seconds=1))
    assert made.has_expired(NOW)
    assert not new_token(None).has_expired(NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"token-id": "other1"},
        {"token-secret": "short"},
        {"expiration": "tomorrow"},
        {"auth-extra-groups": "system:masters"},
        {"auth-extra-groups": f"{NODE_GROUP},system:nodes"},
    ],
)
def test_malformed_tokens_are_invalid(changed):
    assert read(*secret_of(new_token(NOW), **changed)) is None


def test_data_that_is_not_base64_is_invalid():
    name, data = secret_of(new_token(NOW))
    assert read(name, data | {"description": "%"}) is None
    assert read(name, None) is None


@pytest.mark.parametrize(
    "value", ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde"]
)
def test_invalid_tokens(value):
    assert parse(value) is None
