"""What the first host answers about its images."""

import httpx2
import pytest
from tests.unit.node.images.conftest import disk

from corral.api.images import IMAGES_PATH
from corral.node.images.serving import ImageServer
from corral.node.images.store import ImageStore


@pytest.fixture
async def image_request(tmp_path):
    store = ImageStore(tmp_path / "images")
    source = tmp_path / "source.img"
    source.write_bytes(disk())
    await store.import_disk(source, ["lab/debian:12"])
    transport = httpx2.ASGITransport(ImageServer(store))
    async with httpx2.AsyncClient(transport=transport, base_url="http://first") as client:

        async def ask(**query):
            return await client.get(IMAGES_PATH, params=query)

        yield ask


async def test_an_offer_describes_the_disk(image_request):
    offer = (await image_request(reference="lab/debian:12")).json()
    assert (offer["format"], offer["size"], offer["virtualSize"]) == ("raw", 4096, 4096)
    assert (offer["source"], offer["secret"]) == ("import", "")
    content = await image_request(reference="lab/debian:12", digest=offer["digest"])
    assert content.content == disk()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"reference": "../etc/passwd:x"}, 400),
        ({"reference": "lab/other"}, 404),
        ({"reference": "lab/debian:12", "digest": "sha256:00"}, 404),
        ({"reference": "lab/debian:12", "digest": "../../pki/ca.key"}, 404),
    ],
)
async def test_nothing_else_is_served(image_request, query, status):
    assert (await image_request(**query)).status_code == status
