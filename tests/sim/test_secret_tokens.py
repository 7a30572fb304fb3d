"""Secrets of ServiceAccounts are filled with a token that lasts, and go with their account."""

import asyncio
import base64

import pytest
from lightkube.models.core_v1 import Secret, ServiceAccount
from tests.sim.cluster import Faults, cluster

from corral.api.errors import Invalid, NotFound
from corral.api.kinds.core import secret_types
from corral.api.kinds.core.secret_types import ACCOUNT_NAME, ACCOUNT_TOKEN
from corral.api.object import Key
from corral.api.time import MINUTE
from corral.cluster import service_account_tokens

pytestmark = pytest.mark.looptime

AUTHORITY = "-----BEGIN CERTIFICATE-----"
LOOP = service_account_tokens.controller(lambda: AUTHORITY)
KEY = Key("default", "shepherd-token")


def secret(account="shepherd"):
    metadata = {**KEY._asdict(), "annotations": {ACCOUNT_NAME: account}}
    return {"metadata": metadata, "type": ACCOUNT_TOKEN}


async def hired(c):
    return await c.client.create(
        ServiceAccount, {"metadata": {"name": "shepherd", "namespace": "default"}}
    )


async def filled(c):
    async def is_filled():
        return "token" in ((await c.client.get(Secret, *reversed(KEY))).data or {})

    await c.until(is_filled)
    found = await c.client.get(Secret, *reversed(KEY))
    return {name: base64.b64decode(value).decode() for name, value in found.data.items()}


def gone(c):
    async def is_gone():
        try:
            await c.client.get(Secret, *reversed(KEY))
        except NotFound:
            return True
        return False

    return c.until(is_gone)


async def test_a_secret_gets_a_token_of_its_account():
    async with cluster(stand_ins=[LOOP]) as c:
        account = await hired(c)
        await c.client.create(Secret, secret())
        data = await filled(c)
        assert (data["ca.crt"], data["namespace"]) == (AUTHORITY, "default")
        user = c.server.rest.accounts.user(data["token"])
        assert (user.name, user.uid) == (
            "system:serviceaccount:default:shepherd",
            account.metadata.uid,
        )
        kept = await c.client.get(Secret, *reversed(KEY))
        assert kept.metadata.annotations[service_account_tokens.ACCOUNT_UID] == account.metadata.uid


async def test_the_token_is_valid_as_long_as_its_secret_exists():
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await c.client.create(Secret, secret())
        token = (await filled(c))["token"]
        await c.client.delete(Secret, KEY)
        assert c.server.rest.accounts.user(token) is None


async def test_removed_keys_of_a_secret_are_restored():
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await c.client.create(Secret, secret())
        first = await filled(c)
        await c.client.patch(Secret, KEY, {"data": {"token": None, "ca.crt": "eA=="}})
        again = await filled(c)
        assert again["token"] != first["token"]
        assert again["ca.crt"] == AUTHORITY


async def test_a_secret_is_deleted_with_its_account():
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await c.client.create(Secret, secret())
        await filled(c)
        await c.client.delete(ServiceAccount, Key("default", "shepherd"))
        await gone(c)


async def test_no_token_is_issued_for_a_missing_account():
    async with cluster(stand_ins=[LOOP]) as c:
        await c.client.create(Secret, secret("nobody"))
        await gone(c)
        with pytest.raises(Invalid, match="Required value"):
            await c.client.create(Secret, secret(""))


async def test_tokens_are_issued_in_spite_of_faults():
    faults = Faults(seed=7, fail=0.2, lose_answer=0.2, delay=0.5, cut=0.1, double=0.1)
    async with cluster(stand_ins=[LOOP], faults=faults) as c:
        await hired(c)
        await c.client.create(Secret, secret())
        await filled(c)


async def created_earlier(c, monkeypatch, name) -> None:
    """Create a Secret as an earlier version did, which checked nothing."""
    with monkeypatch.context() as earlier:
        earlier.setattr(secret_types, "faults", lambda *_: iter(()))
        await c.client.create(Secret, secret(name))


async def test_secrets_with_invalid_account_names_are_deleted(monkeypatch):
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await created_earlier(c, monkeypatch, "?limit=1")
        await gone(c)


@pytest.mark.parametrize("name", [None, ""])
async def test_a_secret_without_an_account_is_left_alone(monkeypatch, name):
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await created_earlier(c, monkeypatch, name)
        await asyncio.sleep(MINUTE)
        assert await c.client.get(Secret, *reversed(KEY))
        metrics = await c.metrics()
        assert metrics.value("workqueue_retries_total", name="secret-tokens") == 0


async def test_an_immutable_secret_is_left_alone():
    async with cluster(stand_ins=[LOOP]) as c:
        await hired(c)
        await c.client.create(Secret, secret() | {"immutable": True})
        await asyncio.sleep(MINUTE)
        assert (await c.client.get(Secret, *reversed(KEY))).data is None
        metrics = await c.metrics()
        assert metrics.value("workqueue_retries_total", name="secret-tokens") == 0
