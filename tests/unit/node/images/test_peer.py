"""Images that are copied from another host: who gets which, and what is not believed."""

import hashlib
import time
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.unit.node.images.conftest import disk

from corral.api.errors import Unavailable
from corral.node.host.destinations import ANYWHERE, Destinations
from corral.node.images.access import Access, credential_hash
from corral.node.images.credentials import Credential, SecretName
from corral.node.images.error import ERR_IMAGE_NEVER_PULL, ERR_IMAGE_PULL, ImageError
from corral.node.images.image import Record
from corral.node.images.limits import Limits
from corral.node.images.peer import Peer, beginning
from corral.node.images.secret_proofs import SKEW_SECONDS
from corral.node.images.serving import ImageServer
from corral.node.images.store import ImageStore

NAME = "lab/debian:12"
SECRET = Credential("docker.io", "ann", "secret", SecretName("default", "login", "uid"))
QUICK = Limits(attempts=1, retry_seconds=0.01)


USER = "system:node:second"


class First:
    """The first host; ``away`` and ``spoils`` say how it fails.

    ``user`` is as whom it knows its client, ``headers`` are those of the last request.
    """

    def __init__(self, directory):
        self.store = ImageStore(directory)
        self.user, self.now = USER, time.time()
        self.headers = {}
        self.away = self.spoils = False
        self.paths = []
        images = ImageServer(self.store, lambda: self.now)

        async def app(scope, receive, send):
            await images({**scope, "state": {"user": self.user}}, receive, send)

        transport = httpx2.ASGITransport(app)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://first")

    @asynccontextmanager
    async def download(self, path, headers):
        self.paths.append(path)
        self.headers = headers
        if self.away:
            raise Unavailable("the API server does not answer")
        async with self._client.stream("GET", path, headers=headers) as response:
            yield response.status_code, self._content(response, "digest=" in path)

    async def _content(self, response, is_disk):
        async for chunk in response.aiter_raw():
            yield chunk[::-1] + b"x" if self.spoils and is_disk else chunk

    @property
    def downloads(self):
        return sum("digest=" in path for path in self.paths)


@pytest.fixture
def first(tmp_path):
    return First(tmp_path / "first")


@pytest.fixture
def second(tmp_path, first):
    peer = Peer(first.download, user=USER)
    return store_with(tmp_path, peer)


def store_with(tmp_path, *peers):
    return ImageStore(
        tmp_path / "second", limits=QUICK, destinations=Destinations(), peers=lambda _: peers
    )


async def imported(first, tmp_path, fill=b"d", name=NAME):
    source = tmp_path / "source.img"
    source.write_bytes(disk(fill=fill))
    return await first.store.import_disk(source, [name])


def pulled(first, tmp_path, access, name=NAME):
    """Put an image into the first store as a pull of a registry leaves it."""
    content = disk(fill=b"p")
    file = tmp_path / "pulled.img"
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    record = Record(
        reference=f"docker.io/{name}",
        disk=f"sha256-{digest}.raw",
        format="raw",
        virtual_size=len(content),
        source="pull",
        manifest=f"sha256:{digest}",
        access=access,
    )
    first.store._commit(file, record, [])


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent", "Never"])
async def test_an_image_imported_on_the_first_host_is_available_on_all(
    first, second, tmp_path, policy
):
    original = await imported(first, tmp_path)
    copy = await second.ensure(NAME, policy=policy, path="/any/path.img")
    assert (copy.digest, copy.source) == (original.digest, "copy")
    assert copy.path.read_bytes() == original.path.read_bytes() == disk()
    await second.ensure(NAME, policy=policy)
    assert first.downloads == 1


async def test_a_copy_follows_the_import_by_the_pull_policy(first, second, tmp_path):
    await imported(first, tmp_path)
    old = await second.ensure(NAME, policy="Always")
    new = await imported(first, tmp_path, b"n")
    assert (await second.ensure(NAME, policy="IfNotPresent")).digest == old.digest
    assert (await second.ensure(NAME, policy="Always")).digest == new.digest
    first.away = True
    assert (await second.ensure(NAME, policy="Always")).digest == new.digest


async def test_a_local_import_is_not_replaced(first, second, tmp_path):
    source = tmp_path / "own.img"
    source.write_bytes(disk(fill=b"o"))
    own = await second.import_disk(source, [NAME])
    await imported(first, tmp_path)
    assert (await second.ensure(NAME, policy="Always")).digest == own.digest
    assert not first.paths


async def test_a_private_image_is_copied_only_with_its_credentials(first, second, tmp_path):
    pulled(first, tmp_path, Access.by(SECRET))
    stranger = Credential("docker.io", "eve", "guess", SecretName("default", "login", "uid"))
    for credentials in ([], [stranger]):
        with pytest.raises(ImageError) as failure:
            await second.ensure(NAME, policy="IfNotPresent", credentials=credentials)
        assert failure.value.reason == ERR_IMAGE_PULL
    assert not first.downloads
    copy = await second.ensure(NAME, policy="IfNotPresent", credentials=[SECRET])
    assert (copy.source, copy.access) == ("pull", Access.by(SECRET))
    with pytest.raises(ImageError):
        await second.ensure(NAME, policy="IfNotPresent")


@pytest.mark.parametrize(
    ("user", "late", "status"),
    [
        (USER, 0, 200),
        (USER, SKEW_SECONDS - 60, 200),
        ("system:node:thief", 0, 404),
        (USER, SKEW_SECONDS + 60, 404),
        (USER, -SKEW_SECONDS - 60, 404),
    ],
)
async def test_a_proof_of_credentials_is_bound_to_sender_image_and_time(
    first, second, tmp_path, user, late, status
):
    pulled(first, tmp_path, Access.by(SECRET))
    await second.ensure(NAME, policy="IfNotPresent", credentials=[SECRET])
    path, headers = first.paths[0], dict(first.headers)
    assert credential_hash(SECRET) not in str(headers)
    first.user, first.now = user, first.now + late
    async with first.download(path, headers) as (answered, _):
        assert answered == status
    async with first.download(path.replace("debian", "other"), headers) as (answered, _):
        assert answered == 404


async def test_a_pulled_image_is_copied_unless_the_policy_is_always(first, second, tmp_path):
    pulled(first, tmp_path, Access())
    with pytest.raises(ImageError) as failure:
        await second.ensure(NAME, policy="Never")
    assert failure.value.reason == ERR_IMAGE_NEVER_PULL
    with pytest.raises(ImageError):
        await second.ensure(NAME, policy="Always")
    copy = await second.ensure(NAME, policy="IfNotPresent")
    assert copy.manifest
    assert copy.access.everyone


async def test_a_disk_with_another_digest_is_rejected(first, second, tmp_path):
    await imported(first, tmp_path)
    first.spoils = True
    with pytest.raises(ImageError):
        await second.ensure(NAME, policy="Never")
    assert second.find(NAME) is None
    first.spoils = False
    assert await second.ensure(NAME, policy="Never")


async def test_without_the_first_host_the_registry_is_used(first, second):
    first.away = True
    with pytest.raises(ImageError) as failure:
        await second.ensure(NAME, policy="IfNotPresent")
    assert failure.value.reason == ERR_IMAGE_PULL


async def test_copies_are_not_copied_on(first, second, tmp_path):
    await imported(first, tmp_path)
    await second.ensure(NAME, policy="Always")
    middle = First(tmp_path / "second")
    third = ImageStore(
        tmp_path / "third",
        limits=QUICK,
        destinations=Destinations(),
        peers=lambda _: [Peer(middle.download)],
    )
    with pytest.raises(ImageError) as failure:
        await third.ensure(NAME, policy="Never")
    assert failure.value.reason == ERR_IMAGE_NEVER_PULL


async def test_the_next_host_is_tried_if_one_is_unavailable(first, tmp_path):
    away = First(tmp_path / "away")
    away.away = True
    original = await imported(first, tmp_path)
    store = store_with(tmp_path, Peer(away.download, "node a"), Peer(first.download, "node b"))
    assert (await store.ensure(NAME, policy="Never")).digest == original.digest


class Copied:
    """A host that has pulled an image of a registry, and another one that asks both."""

    def __init__(self, tmp_path, registry, limits):
        self.host = First(tmp_path / "first")
        self._first = ImageStore(tmp_path / "first", destinations=ANYWHERE, limits=limits)
        self.second = ImageStore(
            tmp_path / "second",
            destinations=ANYWHERE,
            limits=limits,
            peers=lambda _: [Peer(self.host.download)],
        )
        self._registry = registry

    async def pulled(self, name):
        """Pull an image on the first host."""
        await self._first.ensure(name, policy="Always")

    async def pulled_again(self, name):
        """Pull an image on both hosts, as Always does; answers it, and the second one's blobs."""
        await self.pulled(name)
        del self._registry.requests[:]
        image = await self.second.ensure(name, policy="Always")
        return image, [path for path in self._registry.requests if "/blobs/" in path]


@pytest.fixture
def copied(tmp_path, registry, limits):
    return Copied(tmp_path, registry, limits)


async def test_always_asks_the_registry_for_the_manifest_and_a_host_for_the_disk(
    copied, registry, shapes
):
    content = shapes.disk()
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": content}))
    image, blobs = await copied.pulled_again(name)
    assert image.path.read_bytes() == content
    assert image.source == "pull"
    assert (copied.host.downloads, blobs) == (1, [])


async def test_a_disk_that_a_host_spoils_is_pulled(copied, registry, shapes):
    content = shapes.disk()
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": content}))
    copied.host.spoils = True
    image, blobs = await copied.pulled_again(name)
    assert image.path.read_bytes() == content
    assert blobs


async def test_a_newer_image_of_the_registry_is_pulled(copied, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    await copied.pulled(name)
    newer = shapes.disk(fill=b"n")
    registry.add("demo/disk", shapes.tar({"disk/a.img": newer}))
    image = await copied.second.ensure(name, policy="Always")
    assert image.path.read_bytes() == newer
    assert copied.host.downloads == 0


async def test_no_more_of_a_content_is_read_than_is_returned():
    async def endless():
        while True:
            yield b"12345"

    assert await beginning(endless(), 12) == b"123451234512"


async def test_a_content_that_is_shorter_is_whole():
    async def content():
        yield b"12"
        yield b"3"

    assert await beginning(content(), 12) == b"123"
