from contextlib import aclosing

import msgspec
import pytest
import structlog
from lightkube.models.core_v1 import ConfigMap, Namespace, Pod

from corral.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Gone,
    InternalError,
    NotFound,
)
from corral.api.kinds import KINDS, kind_of
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.request import Response, User
from corral.client.client import Client, path_of
from corral.client.decoding import Bookmark, ResponseCache, Unreadable
from corral.client.tokens import token_of
from corral.client.transport import InProcess
from corral.reconcile.objects import Partial, key_of
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters",))
A = Key("default", "a")
_NAMES = b'"metadata":{"namespace":"default","name":"a","uid":"1","resourceVersion":"7"}'
UNREADABLE = (
    b'{%s,"data":5}' % _NAMES,
    b'{%s,"data":{"a":"\xff"}}' % _NAMES,
)


@pytest.fixture
async def client():
    store = Store.in_memory()
    client = Client(InProcess(ApiServer(store).handle, ADMIN))
    await client.create(Namespace, {"metadata": {"name": "default"}})
    yield client
    await store.close()


def config(name, **data):
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_objects_are_created_read_updated_and_deleted(client):
    made = await client.create(ConfigMap, config("a", x="1"))
    assert made.metadata.uid
    assert (await client.get(ConfigMap, "a", "default")).data == {"x": "1"}
    changed = await client.patch(ConfigMap, A, {"data": {"y": "2"}})
    assert changed.data == {"x": "1", "y": "2"}
    changed = await client.patch(ConfigMap, A, [{"op": "remove", "path": "/data/x"}])
    assert changed.data == {"y": "2"}
    changed.data = {"z": "3"}
    assert (await client.replace(ConfigMap, changed)).data == {"z": "3"}
    await client.delete(ConfigMap, A, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", "default")


async def test_errors_are_raised_as_their_exceptions(client):
    made = await client.create(ConfigMap, config("a"))
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, config("a"))
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, A, uid="another")
    await client.patch(ConfigMap, A, {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        await client.replace(ConfigMap, made)


async def test_lists_are_read_in_pages(client):
    for number in range(2100):
        await client.create(ConfigMap, config(f"c{number:04}"))
    listed = await client.list(ConfigMap)
    assert [key_of(one).name for one in listed.items] == [f"c{n:04}" for n in range(2100)]
    assert listed.resource_version
    one = await client.list(ConfigMap, "default", fields="metadata.name=c0007")
    assert [key_of(item).name for item in one.items] == ["c0007"]


async def test_any_kind_can_be_read_as_partial_metadata(client):
    await client.create(ConfigMap, config("a"))
    [found] = (await client.list(Partial, kind=kind_of(ConfigMap))).items
    assert found.metadata.name == "a"


async def test_a_watch_yields_changes_and_ends_in_time(client):
    since = (await client.list(ConfigMap)).resource_version
    await client.create(ConfigMap, config("a"))
    await client.patch(ConfigMap, A, {"data": {"x": "1"}})
    await client.delete(ConfigMap, A)
    watch = client.watch(ConfigMap, resource_version=since, timeout_seconds=1)
    seen = [
        (event.type, key_of(event.object))
        async for event in watch
        if not isinstance(event, Bookmark)
    ]
    assert seen == [("ADDED", A), ("MODIFIED", A), ("DELETED", A)]


class Canned:
    """A server that answers what it was given."""

    def __init__(self, *bodies, status=200):
        self.bodies = bodies
        self.status = status

    async def send(self, request):
        async def lines():
            for body in self.bodies:
                yield body

        body = lines() if "watch=" in request.query else self.bodies[0]
        return Response(status=self.status, body=body)


async def events(*chunks):
    client = Client(Canned(*chunks))
    return [event async for event in client.watch(ConfigMap, resource_version="1")]


async def test_watch_lines_can_be_split_anywhere():
    line = b'{"object": {"metadata": {"name": "a"}}, "type": "ADDED"}\n'
    plain = b'{"type":"MODIFIED","object":{"metadata":{"name":"b"}}}\n'
    whole = line + plain
    for cut in range(1, len(whole)):
        seen = await events(whole[:cut], whole[cut:])
        assert [(event.type, event.object.metadata.name) for event in seen] == [
            ("ADDED", "a"),
            ("MODIFIED", "b"),
        ]


async def test_bookmarks_have_the_revision():
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"42"}}}\n'
    assert await events(bookmark) == [Bookmark("42")]


async def test_an_error_in_a_watch_is_raised():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    line = msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"
    with pytest.raises(Gone, match="too old"):
        await events(line)


async def test_an_unreadable_object_does_not_hide_others():
    page = b'{"metadata":{},"items":[%s,{"metadata":{"name":"b"}}]}'
    for bad in UNREADABLE:
        line = b'{"type":"MODIFIED","object":%s}\n' % bad
        good = b'{"type":"ADDED","object":{"metadata":{"name":"b"}}}\n'
        first, second = await events(line, good)
        assert first == Unreadable("MODIFIED", A, "1", "7")
        assert second.object.metadata.name == "b"
        listed = await Client(Canned(page % bad)).list(ConfigMap)
        assert [key_of(item).name for item in listed.items] == ["b"]


async def test_an_unreadable_change_causes_a_new_list():
    deep = b'{%s,"data":%s1%s}' % (_NAMES, b'{"a":' * 5000, b"}" * 5000)
    for bad in (b'{"metadata":{"name":5}}', b'{"metadata":', deep):
        line = b'{"type":"ADDED","object":%s}\n' % bad
        with pytest.raises(Gone):
            await events(line)


async def test_an_invalid_list_is_an_error():
    with pytest.raises(InternalError, match="no list"):
        await Client(Canned(b"[1]")).list(ConfigMap)


async def test_an_unreadable_object_is_logged_once():
    line = b'{"type":"MODIFIED","object":%s}\n' % UNREADABLE[0]
    with structlog.testing.capture_logs() as said:
        assert len(await events(line, line, line)) == 3
    assert [entry["name"] for entry in said] == ["default/a"]


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[1]"])
async def test_an_error_without_a_status_is_an_error(body):
    with pytest.raises(ApiError) as caught:
        await Client(Canned(body, status=502)).get(ConfigMap, "a", "default")
    assert str(caught.value) in (body.decode(), "the server answered 502")


async def test_a_response_of_another_kind_is_an_error():
    with pytest.raises(InternalError, match="no ConfigMap"):
        await Client(Canned(b'{"metadata":[]}')).get(ConfigMap, "a", "default")


@pytest.mark.parametrize("name", ["../secrets/a", "a/b", "..", ".", "a%2fb"])
async def test_names_are_escaped_in_paths(client, name):
    for key in (Key("default", name), Key(name, "a")):
        with pytest.raises(BadRequest, match="invalid resource name"):
            path_of(kind_of(ConfigMap), key)
    with pytest.raises(BadRequest, match="invalid resource name"):
        await token_of(client, Key("default", name), kind="Pod", name="a", uid="1", seconds=600)


def test_a_subresource_needs_a_name():
    with pytest.raises(BadRequest, match="may not be empty"):
        path_of(kind_of(Pod), Key("default", ""), "log")


def test_paths_are_kubernetes():
    pods, machines = kind_of(Pod), kind_of(VirtualMachineInstance)
    assert path_of(pods, Key("", "")) == "/api/v1/pods"
    assert path_of(pods, Key("ns", "p"), "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert (
        path_of(machines, Key("ns", "m"))
        == "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/m"
    )
    assert KINDS.by_kind("", "Pod") is pods


async def object_of_next(watch):
    """Return the object of the next event of a watch."""
    return (await anext(watch)).object


async def test_an_object_of_a_response_is_not_decoded_again_in_a_watch(client):
    """Reading an object takes longer than to look it up, and caches would hold it twice."""
    known = []
    own = client.with_observer(known.append, watching=client)
    acting = Client(client._transport).with_observer(known.append, watching=client)
    async with aclosing(client.watch(ConfigMap, resource_version="1")) as watch:
        for writer in (own, acting):
            made = await writer.create(ConfigMap, config(f"a{len(known)}", x="y"))
            assert known[-1] is made
            assert await object_of_next(watch) is made


async def test_another_view_of_a_response_is_another_object(client):
    own = client.with_observer(lambda _: None, watching=client)
    async with aclosing(
        client.watch(Partial, kind=kind_of(ConfigMap), resource_version="1")
    ) as watch:
        made = await own.create(ConfigMap, config("a"))
        seen = await object_of_next(watch)
    assert type(seen) is Partial
    assert key_of(seen) == key_of(made)


def test_the_number_of_cached_responses_is_limited():
    responses = ResponseCache()
    item = ConfigMap(data={"x": "y"})
    for number in range(257):
        responses.put(ConfigMap, b"%d" % number, item)
    assert responses.get(ConfigMap, memoryview(b"0")) is None
    assert responses.get(ConfigMap, memoryview(b"1")) is item
    assert responses.get(ConfigMap, memoryview(b"256")) is item


def test_large_responses_are_not_cached():
    responses, item = ResponseCache(), ConfigMap()
    large = b"x" * (1 << 20)
    responses.put(ConfigMap, large, item)
    assert responses.get(ConfigMap, memoryview(large)) is None
