"""Tests of waiting for a state of one object."""

import asyncio

import pytest
from lightkube.models.core_v1 import ConfigMap

from corral.api.errors import Gone, NotFound
from corral.api.object import Key
from corral.reconcile.wait import wait_for

KEY = Key("default", "a")


def has_data(item):
    return bool(item.data)


@pytest.fixture
async def waiting(client):
    """A wait that has begun, for data of an object that has none."""
    await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
    task = asyncio.create_task(wait_for(client, ConfigMap, KEY, has_data))
    await asyncio.sleep(0)
    return task


async def test_a_condition_that_holds_returns_at_once(client):
    await client.create(
        ConfigMap, {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y"}}
    )
    assert (await wait_for(client, ConfigMap, KEY, has_data)).data == {"x": "y"}


async def test_a_change_ends_the_wait(client, waiting):
    await client.create(ConfigMap, {"metadata": {"name": "b", "namespace": "default"}})
    await client.patch(ConfigMap, KEY, {"metadata": {"labels": {"no": "data"}}})
    await client.patch(ConfigMap, KEY, {"data": {"x": "y"}})
    async with asyncio.timeout(60):
        assert (await waiting).data == {"x": "y"}


async def test_a_deleted_object_is_reported(client, waiting):
    await client.patch(ConfigMap, KEY, {"metadata": {"labels": {"seen": "yes"}}})
    await client.delete(ConfigMap, KEY)
    async with asyncio.timeout(60):
        with pytest.raises(NotFound):
            await waiting


async def test_a_missing_object_is_reported(client):
    with pytest.raises(NotFound):
        await wait_for(client, ConfigMap, KEY, has_data)


async def test_an_expired_watch_is_restarted(client, monkeypatch):
    await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
    started, watch = asyncio.Event(), client.watch

    async def too_old_at_first(*arguments, **options):
        if not started.is_set():
            started.set()
            raise Gone("too old resource version")
        async for event in watch(*arguments, **options):
            yield event

    monkeypatch.setattr(client, "watch", too_old_at_first)
    task = asyncio.create_task(wait_for(client, ConfigMap, KEY, has_data))
    async with asyncio.timeout(60):
        await started.wait()
        await client.patch(ConfigMap, KEY, {"data": {"x": "y"}})
        assert (await task).data == {"x": "y"}
