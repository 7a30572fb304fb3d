"""Versions that have not changed for a while take little memory, and read as before."""

import secrets
import tracemalloc

from corral.api.object import Key
from corral.store import Store
from corral.store.packing import SIZES, pack
from corral.store.sqlite import Log

KIND = "pods"
OBJECTS = 200


def pod(number: int, kind: str = "Pod", **data: str) -> dict:
    containers = [
        {"name": f"container-{index}", "image": "registry/image:1"} for index in range(40)
    ]
    name = f"pod-{number}"
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": secrets.token_hex(16)},
        "spec": {"containers": containers},
        **data,
    }


class Clock:
    """Seconds since 1970."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(path=None) -> Store:
    return Store(Log(path), threaded=False, clock=Clock())


async def fill(store: Store, kind: str = KIND) -> dict[Key, dict]:
    documents = {Key("default", f"pod-{number}"): pod(number) for number in range(OBJECTS)}
    for key, document in documents.items():
        await store.write(kind, key, document)
    return documents


async def pass_by(store: Store, seconds: float) -> None:
    """Let time pass, with writes of others in the end."""
    store._clock.now += seconds
    for _ in range(10):
        await store.write("leases", Key("default", "lease"), {"metadata": {"name": "lease"}})


def held(store: Store, kind: str = KIND) -> int:
    """Bytes that reading the encoded documents makes anew: those that are not packed make none."""
    tracemalloc.start()
    try:
        texts = [record.rest for record in store.objects(kind)]
        return tracemalloc.get_traced_memory()[0] if texts else 0
    finally:
        tracemalloc.stop()


async def test_versions_that_do_not_change_are_packed_and_read_as_before():
    store = opened()
    documents = await fill(store)
    sizes = {record.key: record.size for record in store.objects(KIND)}
    await pass_by(store, 60)
    records = store.objects(KIND)
    assert held(store) > sum(sizes.values()) * 0.9
    assert {record.key: record.document() for record in records} == documents
    assert {record.key: record.size for record in records} == sizes
    assert all(len(record.data) == record.size for record in records)
    await store.close()


async def test_new_versions_stay_as_they_are():
    store = opened()
    await fill(store)
    await pass_by(store, 10)
    assert held(store) < OBJECTS * 200
    await store.close()


async def test_a_packed_object_is_changed_and_deleted_like_any():
    store = opened()
    documents = await fill(store)
    await pass_by(store, 60)
    key, document = next(iter(documents.items()))
    since = store.revision
    await store.write(KIND, key, document | {"status": {"phase": "Running"}})
    await store.delete(KIND, key, store.get(KIND, key).document())
    changed, deleted = store.changes(KIND, since)
    assert "status" not in changed.previous.document()
    assert changed.record.document()["status"] == {"phase": "Running"}
    assert deleted.deleted
    assert store.get(KIND, key) is None
    await store.close()


async def test_what_is_loaded_is_packed_step_by_step(tmp_path):
    path = tmp_path / "store.sqlite"
    store = opened(path)
    documents = await fill(store)
    await pass_by(store, 60)
    await store.close()
    store = opened(path)
    await pass_by(store, 60)
    assert held(store) > sum(record.size for record in store.objects(KIND)) * 0.9
    assert {record.key: record.document() for record in store.objects(KIND)} == documents
    await store.close()


async def test_no_secret_serves_as_a_sample():
    store = opened()
    await fill(store, "secrets")
    await pass_by(store, 60)
    assert held(store, "secrets") < OBJECTS * 200
    await store.close()


def test_what_does_not_get_smaller_stays_as_it_is():
    text = secrets.token_bytes(SIZES.start)
    assert pack(text, b"") is None
    assert pack(text, text).unpack() == text
