"""Uploads: what clients send, and what they are answered."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from corral.node.storage.population.error import PopulationError
from corral.node.storage.population.partial_content import PartialContent
from corral.node.storage.population.upload import Uploads

PATH = "/default/disk/uid-1/"


@pytest.fixture
def part(work):
    return PartialContent(work, max_bytes=16 << 20)


async def send(uploads, pieces, *, way="upload", length=None, method="POST", leave=False):
    """The status and the text that an upload is answered."""
    body = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if leave:
        body.append({"type": "http.disconnect"})
    else:
        body.append({"type": "http.request", "body": b"", "more_body": False})
    said = []

    async def receive():
        return body.pop(0)

    async def keep(message):
        said.append(message)

    total = sum(map(len, pieces)) if length is None else length
    headers = [(b"content-length", str(total).encode())] if total >= 0 else []
    scope = {"type": "http", "method": method, "path": PATH + way, "headers": headers}
    await uploads({**scope, "query_string": b""}, receive, keep)
    return said[0]["status"], said[1]["body"].decode()


def chunks_of(content):
    return [content[start : start + 65536] for start in range(0, len(content), 65536)]


async def test_an_uploaded_disk_is_written(part, content):
    uploads = Uploads()
    async with uploads.accept("uid-1", part) as upload:
        assert await send(uploads, [], method="HEAD") == (200, "")
        assert await send(uploads, chunks_of(content), way="upload-async") == (200, "")
        assert upload.received.is_set()
    assert part.path.read_bytes() == content
    assert part.record.complete


async def test_an_upload_without_a_length_arrives_too(part, content):
    uploads = Uploads()
    async with uploads.accept("uid-1", part):
        assert (await send(uploads, chunks_of(content), way="upload-async", length=-1))[0] == 200
    assert part.path.read_bytes() == content


async def test_the_synchronous_way_is_answered_when_the_disk_is_there(part, content):
    uploads = Uploads()
    async with uploads.accept("uid-1", part) as upload:
        sending = asyncio.ensure_future(send(uploads, chunks_of(content)))
        await upload.received.wait()
        await asyncio.sleep(0)
        assert not sending.done()
        upload.failure.set_result("")
        assert await sending == (200, "")


async def test_a_synchronous_upload_answers_why_it_was_refused(part, content):
    uploads = Uploads()

    async def fill():
        async with uploads.accept("uid-1", part) as upload:
            await upload.received.wait()
            raise PopulationError("it is no disk")

    filling = asyncio.ensure_future(fill())
    await asyncio.sleep(0)
    answer = await send(uploads, chunks_of(content))
    with pytest.raises(PopulationError):
        await filling
    assert answer == (400, "it is no disk")


async def test_an_upload_without_a_waiting_claim_is_unavailable(part):
    assert await send(Uploads(), [b"x"]) == (503, "PVC disk is not ready for an upload")


async def test_two_at_once_are_one_too_many(part, content):
    uploads = Uploads()
    async with uploads.accept("uid-1", part) as upload:
        upload.busy = True
        assert await send(uploads, [b"x"]) == (503, "PVC disk is being uploaded to already")


async def test_a_received_upload_is_not_overwritten(part, content):
    uploads = Uploads()
    async with uploads.accept("uid-1", part):
        assert (await send(uploads, chunks_of(content), way="upload-async"))[0] == 200
        assert await send(uploads, [b"x"]) == (503, "PVC disk is being uploaded to already")
    assert part.path.read_bytes() == content


@pytest.mark.parametrize(
    ("pieces", "settings", "words"),
    [
        ([b"x" * 1000], {"leave": True}, "the client left in the middle"),
        ([b"x" * 1000], {"length": 2000}, "ended after 1000 of 2000 bytes"),
        ([], {}, "the upload is empty"),
        ([], {"length": 1 << 40}, "more than 16777216 bytes"),
        ([b"x" * (1 << 20)] * 40, {"length": -1}, "more than 16777216 bytes"),
    ],
    ids=["leaves", "too short", "empty", "announced too long", "too long"],
)
async def test_a_refused_upload_may_be_repeated(part, content, pieces, settings, words):
    uploads = Uploads()
    async with uploads.accept("uid-1", part) as upload:
        status, text = await send(uploads, pieces, **settings)
        assert status == 400
        assert words in text
        assert not upload.received.is_set()
        assert (await send(uploads, chunks_of(content), way="upload-async"))[0] == 200
    assert part.path.read_bytes() == content


async def test_a_full_disk_is_reported_and_the_upload_may_be_repeated(part, content, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    uploads = Uploads()
    async with uploads.accept("uid-1", part):
        with monkeypatch.context() as patched:
            patched.setattr("corral.node.storage.population.partial_content.write_sparse", full)
            status, text = await send(uploads, chunks_of(content))
        assert status == 400
        assert "the disk of the host is full" in text
        assert (await send(uploads, chunks_of(content), way="upload-async"))[0] == 200


async def test_a_slow_client_occupies_no_thread_of_the_default_executor(part):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    uploads, begun, more = Uploads(), asyncio.Event(), asyncio.Event()

    async def receive():
        begun.set()
        await more.wait()
        return {"type": "http.disconnect"}

    async def ignore(_):
        return

    scope = {"type": "http", "method": "POST", "path": PATH + "upload", "headers": []}
    async with uploads.accept("uid-1", part):
        sending = asyncio.create_task(uploads({**scope, "query_string": b""}, receive, ignore))
        async with asyncio.timeout(60):
            await begun.wait()
            await asyncio.to_thread(more.set)
        more.set()
        await sending
