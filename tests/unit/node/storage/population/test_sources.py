"""How downloads run beside everything else that the manager does."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import ConfigMap, PersistentVolumeClaim, Pod

from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datavolume import ClaimCopy, HttpSource, Source
from corral.api.object import Key
from corral.node.host.destinations import ANYWHERE
from corral.node.storage.population import http_download, sources
from corral.node.storage.population.error import NotReady, PopulationError
from corral.node.storage.population.job import Job
from corral.node.storage.population.other_storages import OtherStorages
from corral.node.storage.population.partial_content import PartialContent
from corral.node.storage.population.sources import Sources, _download


class Present:
    """What there is of claims, as a test has it."""

    def __init__(self, claim=None, users=(), handle="pvc-golden"):
        self._claim, self._users, self._handle = claim, users, handle

    def claim(self, key):
        assert key == Key("images", "golden")
        return self._claim

    def users_of(self, _key):
        return self._users

    def place_of(self, _claim):
        return ("s1", self._handle) if self._handle else None


def check(present):
    """Check the preconditions of a copy."""
    others = OtherStorages()
    Sources(None, None, None, None, present, destinations=ANYWHERE, others=others).check(COPY)


def golden(**annotations):
    metadata = {"name": "golden", "namespace": "images", "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, PersistentVolumeClaim)


USER = msgspec.convert({"metadata": {"name": "user", "namespace": "images"}}, Pod)
COPY = Job(
    key=Key("default", "copy"),
    uid="u",
    handle="pvc-copy",
    capacity=1 << 20,
    source=Source(pvc=ClaimCopy(name="golden", namespace="images")),
)


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        (Present(), "CloneWithoutSource"),
        (Present(golden(), users=[USER]), "CloneSourceInUse"),
        (Present(golden(), handle=None), "ImportPVCNotReady"),
        (Present(golden(**{population.POPULATE: "{}"})), "ImportPVCNotReady"),
    ],
    ids=["not there", "in use", "no volume", "not filled"],
)
def test_a_copy_waits_until_its_source_is_there_and_filled_and_at_rest(present, reason):
    with pytest.raises(NotReady) as waits:
        check(present)
    assert waits.value.reason == reason
    check(Present(golden()))


async def test_a_silent_server_occupies_no_thread_of_the_default_executor(work):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/disk"
        request = http_download.Request(url=url, destinations=ANYWHERE)
        fetching = asyncio.create_task(
            _download(request, PartialContent(work, max_bytes=9), lambda _: None)
        )
        connected, _ = await asyncio.get_running_loop().sock_accept(server)
        with connected:
            async with asyncio.timeout(60):
                assert await asyncio.to_thread(bool, "answered")
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching


async def test_the_certificates_of_a_config_map_verify_the_server(storage, monkeypatch):
    requests = []

    async def fetched(request, *_):
        requests.append(request)
        raise PopulationError("enough")

    async def get(_view, name, namespace):
        assert (name, namespace) == ("authorities", "default")
        return ConfigMap(data={"one.crt": "first", "two.crt": "second"})

    monkeypatch.setattr(sources, "_download", fetched)
    storage.provision(COPY.handle, COPY.capacity)
    source = HttpSource(url="https://images.example/disk", cert_config_map="authorities")
    job = replace(COPY, source=Source(http=source))
    over = Sources(
        SimpleNamespace(get=get),
        storage,
        None,
        None,
        None,
        destinations=ANYWHERE,
        others=OtherStorages(),
    )
    with pytest.raises(PopulationError, match="enough"):
        await over.populate(job, lambda *_: None, None)
    assert [request.authorities for request in requests] == ["first\nsecond"]
