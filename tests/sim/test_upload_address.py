"""CDI's configuration, by which clients find where to upload."""

import asyncio

import pytest
from tests.sim.cluster import cluster

from corral.api.kinds.cdi.cdiconfig import NAME, CDIConfig
from corral.api.object import Key
from corral.cluster import cdi_config

pytestmark = pytest.mark.looptime

KEY = Key("", NAME)
URL = "https://127.0.0.1:6443"


async def upload_address(here):
    await asyncio.sleep(1)
    found = await here.client.get(CDIConfig, NAME)
    return found.status.upload_proxy_url, found.status.upload_proxy_ca, found.metadata


async def test_a_deleted_cdi_config_is_recreated_with_the_upload_address():
    loop = cdi_config.controller(URL, "authority")
    async with cluster(stand_ins=(loop,)) as here:
        *first, metadata = await upload_address(here)
        assert first == [URL, "authority"]
        await here.client.delete(CDIConfig, KEY)
        *second, anew = await upload_address(here)
        assert second == first
        assert anew.uid != metadata.uid
        whole = (await here.client.get(CDIConfig, NAME)).status
        wrong = {
            "uploadProxyURL": "https://elsewhere",
            "preallocation": True,
            "scratchSpaceStorageClass": "slow",
            "filesystemOverhead": {"global": "0.5", "storageClass": {"slow": "0.1"}},
        }
        for field, value in wrong.items():
            change = {"status": {field: value}}
            await here.client.patch(CDIConfig, KEY, change, subresource="status")
            *third, mended = await upload_address(here)
            assert third == first
            assert (await here.client.get(CDIConfig, NAME)).status == whole
        await asyncio.sleep(60)
        *_, after = await upload_address(here)
        assert after.resource_version == mended.resource_version
