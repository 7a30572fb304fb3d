import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import ConfigMap, Secret
from structlog.testing import capture_logs

from corral.aio import Background
from corral.api.errors import Gone, Unavailable
from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informers, is_older
from corral.reconcile.objects import Partial, key_of

pytestmark = pytest.mark.looptime

A = Key("default", "a")


def config(name, **labels):
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}}


def by_color(one):
    return [one.metadata.labels["color"]]


def names(items):
    return sorted(key_of(item).name for item in items)


async def until_idle():
    """Give watches a minute of virtual time."""
    await asyncio.sleep(60)


async def test_a_cache_follows_changes(client):
    await client.create(ConfigMap, config("a", color="red"))
    informers = Informers(client)
    informer = informers.of(ConfigMap)
    informer.index(by_color)
    seen = []
    informer.handle(lambda old, new: seen.append((old and key_of(old), new and key_of(new))))
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        assert names(informer.items()) == ["a"]
        await client.create(ConfigMap, config("b", color="red"))
        await until_idle()
        assert names(informer.indexed(by_color, "red")) == ["a", "b"]
        change = {"metadata": {"labels": {"color": "blue"}}}
        await client.patch(ConfigMap, Key("default", "b"), change)
        await until_idle()
        assert names(informer.indexed(by_color, "red")) == ["a"]
        assert names(informer.indexed(by_color, "blue")) == ["b"]
        await client.delete(ConfigMap, Key("default", "a"))
        await until_idle()
        assert informer.get(Key("default", "a")) is None
        assert informer.indexed(by_color, "red") == []
    a, b = Key("default", "a"), Key("default", "b")
    assert seen == [(None, a), (None, b), (b, b), (a, None)]


async def test_controllers_share_an_index_only_by_its_function(client):
    await client.create(ConfigMap, config("a", color="red"))
    informers = Informers(client)
    informer = informers.of(ConfigMap)

    def by_length(one):
        return [str(len(one.metadata.labels["color"]))]

    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        for index in (by_color, by_length, by_color):
            informer.index(index)
        await client.create(ConfigMap, config("b", color="red"))
        await until_idle()
        assert names(informer.indexed(by_color, "red")) == ["a", "b"]
        assert names(informer.indexed(by_length, "3")) == ["a", "b"]


async def test_deletion_handlers_are_not_called_for_objects_missing_in_a_list(client):
    for name in ("a", "b"):
        await client.create(ConfigMap, config(name))
    informers = Informers(client)
    informer = informers.of(ConfigMap)
    deleted, gone = [], []
    informer.handle_deleted(lambda one: deleted.append(key_of(one).name))
    informer.handle(lambda old, new: gone.append(key_of(old).name) if new is None else None)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        await client.delete(ConfigMap, A)
        await until_idle()
        assert deleted == gone == ["a"]
        informer.clear()
        assert (deleted, gone) == (["a"], ["a", "b"])


async def test_informers_of_one_kind_share_a_cache(client):
    informers = Informers(client)
    assert informers.of(ConfigMap) is informers.of(ConfigMap)
    assert informers.of(ConfigMap) is not informers.of(ConfigMap, fields="metadata.name=a")


async def test_a_late_handler_gets_the_cached_objects(client):
    await client.create(ConfigMap, config("a"))
    informers = Informers(client)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await asyncio.sleep(1)
        informer = informers.of(ConfigMap)
        await informer.synced()
        seen = []
        informer.handle(lambda old, new: seen.append((old, key_of(new).name)))
        assert seen == [(None, "a")]


class Troubled:
    """A transport whose watches end in trouble for as long as there is some left."""

    def __init__(self, inner, *trouble):
        self.inner = inner
        self.trouble = list(trouble)
        self.lists = 0

    async def send(self, request):
        if "watch=" in request.query and self.trouble:
            raise self.trouble.pop(0)
        self.lists += "watch=" not in request.query
        return await self.inner.send(request)


async def test_an_expired_watch_lists_again_and_misses_nothing(client):
    await client.create(ConfigMap, config("gone"))
    troubled = Troubled(client._transport)
    informers = Informers(Client(troubled))
    informer = informers.of(ConfigMap)
    seen = []
    informer.handle(
        lambda old, new: seen.append((old and key_of(old).name, new and key_of(new).name))
    )
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        troubled.trouble = [Gone("too old")] * 3
        await asyncio.sleep(700)  # the watch has ended; its successors are refused
        await client.delete(ConfigMap, Key("default", "gone"))
        await client.create(ConfigMap, config("new"))
        await until_idle()
    assert names(informer.items()) == ["new"]
    assert seen == [(None, "gone"), ("gone", None), (None, "new")]
    assert troubled.lists == 4


async def test_an_unavailable_server_is_retried_with_backoff(client, looptime):
    class Away:
        requested = []

        async def send(self, request):
            self.requested.append(float(looptime))
            raise Unavailable("away")

    informers = Informers(Client(Away()))
    informer = informers.of(ConfigMap)
    with capture_logs() as logged:
        async with Background() as tasks:
            tasks.start(informers.run(), name="informers")
            await asyncio.sleep(300)
    assert not informer.has_synced
    assert {(each["kind"], each["error"]) for each in logged} == {("configmaps", "away")}
    pauses = [
        later - sooner for sooner, later in zip(Away.requested, Away.requested[1:], strict=False)
    ]
    assert 10 <= len(pauses) <= 25
    assert pauses[0] <= 0.8
    assert max(pauses) <= 30
    assert min(pauses[-3:]) >= 15


async def test_a_timeout_is_logged_with_a_reason(client, looptime):
    class Silent:
        async def send(self, request):
            await asyncio.sleep(10_000)

    informers = Informers(Client(Silent()))
    informers.of(ConfigMap)
    with capture_logs() as logged:
        async with Background() as tasks:
            tasks.start(informers.run(), name="informers")
            await asyncio.sleep(300)
    assert {each["error"] for each in logged} == {"no answer in time"}


async def test_objects_deleted_between_watches_leave_the_cache_and_indexes(client):
    await client.create(ConfigMap, config("gone", color="red"))
    await client.create(ConfigMap, config("stays", color="red"))
    troubled = Troubled(client._transport, *[Unavailable("away")] * 4, Gone("too old"))
    informers = Informers(Client(troubled))
    informer = informers.of(ConfigMap)
    informer.index(by_color)
    gone = []
    informer.handle(lambda old, new: new is None and gone.append(key_of(old).name))
    assert informer.has_synced is False
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        assert informer.has_synced is True
        await client.delete(ConfigMap, Key("default", "gone"))
        assert troubled.trouble, "no watch has shown it"
        await until_idle()
    assert (troubled.trouble, troubled.lists) == ([], 2)
    assert names(informer.items()) == names(informer.indexed(by_color, "red")) == ["stays"]
    assert gone == ["gone"]


class Cut:
    """A transport whose watches are cut off after so many seconds each."""

    def __init__(self, inner, *lasting):
        self.inner = inner
        self.lasting = list(lasting)
        self.watched = []

    async def send(self, request):
        if "watch=" not in request.query:
            return await self.inner.send(request)
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(self.lasting.pop(0) if self.lasting else 1e6)
        self.watched.append((begun, asyncio.get_running_loop().time()))
        raise Unavailable("cut off")


async def test_a_watch_that_lasted_is_restarted_at_once(client):
    """Nothing is missed in a pause where there is none; what fails at once is left alone longer."""
    cut = Cut(client._transport, 0, 0, 0, 1.1, 0.9, 0.9, 0)
    informers = Informers(Client(cut))
    informers.of(ConfigMap)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await until_idle()
    pauses = [
        begun - ended
        for (_, ended), (begun, _) in zip(cut.watched, cut.watched[1:], strict=False)
    ]  # fmt: skip
    bounds = [(0.4, 0.8), (0.8, 1.6), (1.6, 3.2), (0, 0.001), (0.4, 0.8), (0.8, 1.6)]
    assert len(pauses) == len(bounds)
    for pause, (least, most) in zip(pauses, bounds, strict=True):
        assert least <= pause <= most, pauses


async def test_a_removed_kind_is_no_longer_watched(client):
    """What follows a kind that comes again under its name must not meet what was before."""
    await client.create(ConfigMap, config("a"))
    informers = Informers(client)
    ended, other = informers.of(ConfigMap), informers.of(Secret)
    gone = []
    ended.handle(lambda old, new: new is None and gone.append(key_of(old).name))
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await until_idle()
        informers.stop(kind_of(ConfigMap))
        assert (names(ended.items()), gone) == ([], ["a"])
        assert informers.of_kind(kind_of(ConfigMap)) == []
        await client.create(ConfigMap, config("b"))
        await client.create(Secret, config("s"))
        await until_idle()
        assert (names(ended.items()), names(other.items())) == ([], ["s"])
        assert informers.of(Secret) is other
        again = informers.of(ConfigMap)
        await again.synced()
        assert names(again.items()) == ["a", "b"]


async def test_a_kind_can_be_removed_before_its_informer_ran(client):
    informers = Informers(client)
    informers.of(ConfigMap)
    informers.stop(kind_of(ConfigMap))
    assert informers.of_kind(kind_of(ConfigMap)) == []


async def test_an_object_of_the_same_name_but_another_uid_is_another_object(client):
    await client.create(ConfigMap, config("a"))
    troubled = Troubled(client._transport)
    informers = Informers(Client(troubled))
    informer = informers.of(ConfigMap)
    seen = []
    informer.handle(lambda old, new: seen.append((bool(old), bool(new))))
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        troubled.trouble = [Gone("too old")]
        await asyncio.sleep(598)
        troubled.trouble = [Unavailable("away")] * 3 + [Gone("too old")]
        await client.delete(ConfigMap, Key("default", "a"))
        await client.create(ConfigMap, config("a"))
        await until_idle()
    assert seen == [(False, True), (True, False), (False, True)]


async def test_two_caches_hold_one_copy_of_an_object(client):
    informers = Informers(client)
    every, some = informers.of(ConfigMap), informers.of(ConfigMap, fields="metadata.name=a")
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await client.create(ConfigMap, config("a"))
        await client.create(ConfigMap, config("b"))
        await until_idle()
        key = Key("default", "a")
        assert every.get(key) is some.get(key)
        assert names(some.items()) == ["a"]


async def test_objects_that_are_being_deleted_share_no_parts(client):
    """It leaves soon: the parts of a thousand machines that go need not be compared."""
    informer = Informers(client).of(ConfigMap)
    async with Background() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.synced()
        for name in ("a", "b"):
            document = config(name, color="red")
            document["metadata"]["finalizers"] = ["example.com/stay"]
            await client.create(ConfigMap, document)
        await client.delete(ConfigMap, Key("default", "b"))
        await until_idle()
        a, b = (informer.get(Key("default", name)).metadata for name in ("a", "b"))
        assert b.deletionTimestamp is not None
        assert a.labels == b.labels
        assert a.labels is not b.labels
        await client.create(ConfigMap, config("c", color="red"))
        await until_idle()
        assert informer.get(Key("default", "c")).metadata.labels is a.labels


async def test_cached_objects_share_equal_parts(client):
    informer = Informers(client).of(ConfigMap)
    async with Background() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.synced()
        for number in range(3):
            await client.create(ConfigMap, config(f"n{number}", color="red"))
        await until_idle()

        def labels(number):
            return informer.get(Key("default", f"n{number}")).metadata.labels

        assert labels(0) is labels(1) is labels(2)
        await client.patch(ConfigMap, Key("default", "n0"), {"data": {"x": "y"}})
        await until_idle()
        assert informer.get(Key("default", "n0")).data == {"x": "y"}
        assert informer.get(Key("default", "n1")).data is None
        assert labels(0) is labels(2)


async def test_any_view_of_any_kind_can_be_read(client):
    await client.create(ConfigMap, config("a"))
    await client.create(Secret, config("s"))
    informers = Informers(client)
    kind = kind_of(ConfigMap)
    partial = informers.metadata(kind)
    secrets, some = informers.of(Secret), informers.of(ConfigMap, fields="metadata.name=b")
    assert informers.metadata(kind) is partial is informers.of(Partial, kind=kind)
    assert informers.metadata(kind_of(Secret)) is secrets, "nothing is kept twice"
    assert informers.of_kind(kind) == [partial, some]
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await until_idle()
    assert (names(partial.items()), names(secrets.items())) == (["a"], ["s"])
    assert names(some.items()) == []


async def test_a_controller_reads_its_own_writes(client):
    context = ControllerContext(client)
    informer = context.informers.of(ConfigMap)
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await client.create(ConfigMap, config("a"))
        await until_idle()
        key = Key("default", "a")
        old = informer.get(key)
        answer = await context.client.patch(ConfigMap, key, {"data": {"x": "y"}})
        assert informer.get(key) == answer
        informer.observe(old)
        assert informer.get(key) == answer
        await until_idle()
        assert informer.get(key) == answer


async def test_clients_of_several_users_share_the_caches(client):
    context = ControllerContext(client)
    informer = context.informers.of(ConfigMap)
    acting = context.with_client(Client(client._transport))
    assert acting.client is not client
    assert acting.informers is context.informers
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await client.create(ConfigMap, config("a"))
        await until_idle()
        answer = await acting.client.patch(ConfigMap, A, {"data": {"x": "y"}})
        assert informer.get(A) == answer


async def test_a_late_response_does_not_revive_an_object(client):
    context = ControllerContext(client)
    informer = context.informers.of(ConfigMap)
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        made = await client.create(ConfigMap, config("a"))
        await until_idle()
        await client.delete(ConfigMap, Key("default", "a"))
        await until_idle()
        informer.observe(made)
        assert informer.get(Key("default", "a")) is None
        again = await client.create(ConfigMap, config("a"))
        await until_idle()
        informer.observe(made)
        assert informer.get(Key("default", "a")).metadata.uid == again.metadata.uid


def test_non_numeric_versions_are_never_older():
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("10", "10")
    assert not is_older("abc", "10")
    assert not is_older("9", "abc")
    assert not is_older("", "10")


async def test_handlers_can_add_informers(client):
    """Loops do when a kind is established."""
    informers = Informers(client)
    informer = informers.of(ConfigMap)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        made = await client.create(ConfigMap, config("a"))
        await until_idle()
        informer.handle(lambda _old, _new: informers.of(Secret, fields="metadata.name=x"))
        newer = str(int(made.metadata.resourceVersion) + 1)
        metadata = msgspec.structs.replace(made.metadata, resourceVersion=newer)
        informers.observe(msgspec.structs.replace(made, metadata=metadata, data={"x": "y"}))
        assert informer.get(key_of(made)).data == {"x": "y"}


async def test_an_unreadable_object_leaves_the_cache(client, store):
    """A ghost would keep its name taken, and be counted, for ever."""
    informers = Informers(client)
    informer = informers.of(Lease)
    seen = []
    informer.handle(
        lambda old, new: seen.append((old and key_of(old).name, new and key_of(new).name))
    )
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        await client.create(Lease, lease("a", "2024-01-31T00:00:00.000000Z"))
        await until_idle()
        record = store.latest("leases.coordination.k8s.io", A)
        broken = record.document() | {"spec": {"renewTime": "never"}}
        await store.write("leases.coordination.k8s.io", A, broken)
        await until_idle()
        assert (informer.get(A), seen) == (None, [(None, "a"), ("a", None)])
        await store.delete("leases.coordination.k8s.io", A, broken)
        await client.create(Lease, lease("a", "2024-01-31T00:00:00.000000Z"))
        await until_idle()
        assert informer.get(A).metadata.uid != uid_of_document(broken)


async def test_a_deleted_object_may_be_unreadable(client, store):
    informers = Informers(client)
    informer = informers.of(Lease)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        await informer.synced()
        await client.create(Lease, lease("a", "2024-01-31T00:00:00.000000Z"))
        await until_idle()
        record = store.latest("leases.coordination.k8s.io", A)
        broken = record.document() | {"spec": {"renewTime": "never"}}
        await store.delete("leases.coordination.k8s.io", A, broken)
        await until_idle()
        assert informer.get(A) is None


@pytest.mark.parametrize("time", ["2024-01-31T00:00:00+00:60", "2024-01-30T23:00:00,0Z"])
async def test_cached_times_can_be_read_by_views(client, time):
    """Go reads more than RFC 3339 has, and so does the server; it writes what everybody reads."""
    made = await client.create(Lease, lease("a", time))
    assert made.spec.renewTime == datetime(2024, 1, 30, 23, tzinfo=UTC)
    listed = await client.list(Partial, kind=kind_of(Lease))
    assert [item.metadata.name for item in listed.items] == ["a"]
    answer = await client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a")
    assert b'"renewTime":"2024-01-30T23:00:00.000000Z"' in answer


def lease(name, renewed):
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"renewTime": renewed}}


def uid_of_document(document):
    return document["metadata"]["uid"]
