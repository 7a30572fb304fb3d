"""Which bootstrap tokens authenticate, as which user, and until when."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from corral.api.kinds.auth.bootstrap_token import NODE_GROUP, BootstrapToken
from corral.api.object import Key
from corral.server.authn.bootstrap_tokens import BootstrapTokens
from corral.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOKEN = BootstrapToken("abcdef", "0123456789abcdef", (NODE_GROUP,), NOW + HOUR)


@pytest.fixture
async def store():
    made = Store.in_memory()
    yield made
    await made.close()


async def write(store, token=TOKEN, *, name="", kind="", deleted=False, **data):
    """Store the Secret of a token, with other data."""
    document = token.document()
    texts = document.pop("stringData") | data
    document["data"] = {
        key: base64.b64encode(value.encode()).decode() for key, value in texts.items()
    }
    document["type"] = kind or document["type"]
    if name:
        document["metadata"]["name"] = name
    if deleted:
        document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    key = Key("kube-system", document["metadata"]["name"])
    await store.write("secrets", key, document)
    return key, document


def tokens(store, at=NOW):
    return BootstrapTokens(store, at.timestamp)


async def test_a_token_is_a_user_of_its_groups_until_it_expires(store):
    await write(store)
    user = tokens(store).user(TOKEN.value)
    assert user.name == "system:bootstrap:abcdef"
    assert user.groups == ("system:bootstrappers", NODE_GROUP, "system:authenticated")
    assert tokens(store).ends(TOKEN.value) == (NOW + HOUR).timestamp()
    assert tokens(store, NOW + HOUR).user(TOKEN.value) is None


async def test_a_token_without_an_expiration_lasts(store):
    lasting = BootstrapToken("abcdef", "0123456789abcdef")
    await write(store, lasting)
    assert tokens(store, NOW + 10_000 * HOUR).user(lasting.value) is not None
    assert tokens(store).ends(lasting.value) is None


async def test_a_deleted_secret_ends_its_token(store):
    key, document = await write(store)
    await store.delete("secrets", key, document)
    assert tokens(store).user(TOKEN.value) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"deleted": True},
        {"kind": "Opaque"},
        {"name": "bootstrap-token-ghijkl"},
        {"token-secret": "ffffffffffffffff"},
        {"token-id": "ghijkl"},
        {"usage-bootstrap-authentication": "false"},
        {"expiration": "tomorrow"},
        {"auth-extra-groups": "system:masters"},
    ],
    ids=str,
)
async def test_other_secrets_authenticate_nobody(store, changes):
    await write(store, **changes)
    assert tokens(store).user(TOKEN.value) is None
    assert tokens(store).ends(TOKEN.value) is None


@pytest.mark.parametrize("text", ["", "abcdef", "abcdef.0123456789ABCDEF", f"{TOKEN.value} "])
async def test_what_is_no_token_authenticates_nobody(store, text):
    await write(store)
    assert tokens(store).user(text) is None
