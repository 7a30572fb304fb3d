"""kube-system has the two ConfigMaps in which an API server describes itself."""

import pytest
from lightkube.models.core_v1 import ConfigMap
from tests.sim.cluster import cluster

from corral.api.errors import NotFound
from corral.cluster import system_config
from corral.cluster.system_config import AUTHENTICATION, REQUEST_HEADERS, TRACKING

pytestmark = pytest.mark.looptime

LOOP = system_config.controller(
    {AUTHENTICATION: lambda: system_config.authentication("USERS", "PROXIES")}
)
EXPECTED = {"client-ca-file": "USERS", "requestheader-client-ca-file": "PROXIES", **REQUEST_HEADERS}


async def data(c, key):
    try:
        return (await c.client.get(ConfigMap, key.name, key.namespace)).data
    except NotFound:
        return None


def until_data_is(c, key, expected):
    async def is_so():
        return await data(c, key) == expected

    return c.until(is_so)


async def since(c):
    async def is_there():
        return await data(c, TRACKING) is not None

    await c.until(is_there)
    return await data(c, TRACKING)


async def test_both_config_maps_exist_and_are_recreated():
    async with cluster(stand_ins=[LOOP]) as c:
        await until_data_is(c, AUTHENTICATION, EXPECTED)
        first = await since(c)
        assert system_config._DAY.fullmatch(first["since"])
        for key in (AUTHENTICATION, TRACKING):
            await c.client.delete(ConfigMap, key)
        await until_data_is(c, AUTHENTICATION, EXPECTED)
        assert await since(c) == first


async def test_changed_fields_are_restored_and_added_ones_stay():
    async with cluster(stand_ins=[LOOP]) as c:
        await until_data_is(c, AUTHENTICATION, EXPECTED)
        forged = {"client-ca-file": "FORGED", "more": "x"}
        await c.client.patch(ConfigMap, AUTHENTICATION, {"data": forged})
        await until_data_is(c, AUTHENTICATION, {**EXPECTED, "more": "x"})


async def test_the_date_since_which_legacy_tokens_are_tracked_stays():
    async with cluster(stand_ins=[LOOP]) as c:
        today = await since(c)
        await c.client.patch(ConfigMap, TRACKING, {"data": {"since": "long ago"}})
        await until_data_is(c, TRACKING, today)
        await c.client.patch(ConfigMap, TRACKING, {"data": {"since": "2020-02-02"}})
        await c.client.patch(ConfigMap, AUTHENTICATION, {"data": {"client-ca-file": "FORGED"}})
        await until_data_is(c, AUTHENTICATION, EXPECTED)
        assert await data(c, TRACKING) == {"since": "2020-02-02"}
