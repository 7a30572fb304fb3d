"""A client that speaks nothing but protobuf, and every kind of Kubernetes that is served."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.server.conftest import MAPS, MERGE, SETS, Asker

from corral.api.kinds import KINDS
from corral.api.protobuf import decode, writer
from corral.api.protobuf.messages import message
from corral.api.protobuf.reader import MAGIC, _Reader
from corral.api.protobuf.writer import encode
from corral.api.request import User
from corral.server.request import accept, body
from corral.server.request.accept import Form
from corral.server.response import protobuf as in_protobuf

PROTOBUF = "application/vnd.kubernetes.protobuf"
ONLY = {"accept": PROTOBUF, "content-type": PROTOBUF}
METADATA = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
GOLDEN = Path(__file__).parents[2] / "api" / "protobuf" / "golden.jsonl"
DOCUMENTS = [json.loads(line)["document"] for line in GOLDEN.read_text().splitlines()]
BY_KIND = {(each["apiVersion"], each["kind"]): each for each in DOCUMENTS}
SERVED = [
    (f"{kind.group}/{version.name}".lstrip("/"), kind)
    for kind in KINDS
    if kind.native
    for version in kind.versions
]
KEPT = [
    (version, kind)
    for version, kind in SERVED
    if "list" in kind.verbs and kind.name != "APIService"  # which nobody can make
]


class Speaker(Asker):
    """Sends and reads nothing but protobuf, as a typed client does that is configured so."""

    async def __call__(self, method, path, body=None, headers=None, *, encoded=True):
        if isinstance(body, dict):
            body = encode(body)
        response = await self.raw(method, path, body, ONLY | (headers or {}))
        kinds = [value for name, value in response.headers if name == "content-type"]
        if not encoded:  # there is no room for it
            return response.status, json.loads(response.body)
        assert kinds == [PROTOBUF], response.body
        return response.status, decode(response.body)

    async def watch(self, path, count):
        """So many events of a watch."""
        response = await self.raw("GET", path, headers=ONLY)
        assert ("content-type", f"{PROTOBUF};stream=watch") in response.headers
        events, stream = [], b""
        async for piece in response.body:
            stream += piece
            while len(stream) >= 4 and len(stream) >= (size := 4 + int.from_bytes(stream[:4])):
                frame, stream = stream[4:size], stream[size:]
                events.append(event(frame))
            if len(events) >= count:
                await response.body.aclose()
        return events


def event(frame):
    """The type of a WatchEvent, and its object, which is a body of its own in a RawExtension."""
    assert not frame.startswith(MAGIC)
    parts = _Reader().entry(frame, "WatchEvent")
    raw = _Reader().entry(parts[2], "RawExtension")
    return parts[1].decode(), decode(raw[1])


@pytest.fixture
def speak(ask):
    return Speaker(ask.server)


def collection(version, kind):
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return (
        f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    )


def name_of(kind):
    return f"{kind[0]} {kind[1].name}"


@pytest.mark.parametrize("served", KEPT, ids=name_of)
async def test_every_verb_of_every_kind(speak, served):
    version, kind = served
    path = collection(version, kind)
    document = BY_KIND[version, kind.name]
    name = document["metadata"]["name"]
    status, made = await speak("POST", path, document)
    assert status == 201, made["message"]
    assert (made["apiVersion"], made["kind"]) == (version, kind.name)
    assert made["metadata"]["uid"]
    since = made["metadata"]["resourceVersion"]

    assert await speak("GET", f"{path}/{name}") == (200, made)
    status, listed = await speak("GET", path)
    assert listed["kind"] == (kind.list_name or f"{kind.name}List")
    assert listed["metadata"]["resourceVersion"]
    # Items of a list do not say what they are.
    bare = {key: value for key, value in made.items() if key not in ("apiVersion", "kind")}
    assert [each for each in listed["items"] if each["metadata"]["name"] == name] == [bare]

    made["metadata"]["labels"] = {"first": "yes"}
    status, changed = await speak("PUT", f"{path}/{name}", made)
    assert (status, changed["metadata"]["labels"]["first"]) == (200, "yes")
    patch = json.dumps({"metadata": {"labels": {"second": "yes"}}}).encode()
    status, changed = await speak("PATCH", f"{path}/{name}", patch, MERGE)
    labels = changed["metadata"]["labels"]
    assert (status, labels["first"], labels["second"]) == (200, "yes", "yes")

    options = {"apiVersion": version, "kind": "DeleteOptions", "propagationPolicy": "Background"}
    status, gone = await speak("DELETE", f"{path}/{name}", options)
    assert status == 200, gone
    assert gone["kind"] in ("Status", kind.name)
    status, gone = await speak("DELETE", f"{path}?labelSelector=first", options)
    if kind.has_deletecollection:
        assert (status, gone["kind"]) == (200, kind.list_name or f"{kind.name}List")
    watched = f"{path}?watch=true&resourceVersion={since}&fieldSelector=metadata.name={name}"
    events = await speak.watch(watched, 2)
    assert [kind for kind, _ in events[:2]] == ["MODIFIED", "MODIFIED"]
    assert events[1][1] == changed


@pytest.mark.parametrize("served", [each for each in SERVED if each[1].create_only], ids=name_of)
async def test_reviews_in_protobuf(speak, served):
    version, kind = served
    status, answer = await speak("POST", collection(version, kind), BY_KIND[version, kind.name])
    assert (status, answer["kind"]) == (201, kind.name)
    assert answer["status"] or kind.name == "TokenReview"


async def test_kinds_that_cannot_be_created_are_decoded_and_rejected(speak):
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    status, refused = await speak("POST", path, BY_KIND["apiregistration.k8s.io/v1", "APIService"])
    assert (status, refused["reason"]) == (422, "Invalid")
    assert "corral serves all of its API itself" in refused["message"]
    assert (await speak("GET", path))[1]["kind"] == "APIServiceList"


async def test_errors_in_protobuf(speak):
    assert await speak("GET", f"{MAPS}/none") == (
        404,
        {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": 'configmaps "none" not found',
            "reason": "NotFound",
            "details": {"name": "none", "kind": "configmaps"},
            "code": 404,
        },
    )
    status, refused = await speak("POST", MAPS, b"k8s\0\xff")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"].startswith("the object provided is unrecognized (must be of type Con")


async def test_a_watch_in_protobuf_has_events_and_errors(speak):
    await speak("POST", MAPS, BY_KIND["v1", "ConfigMap"])
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    (first, present), (second, end) = await speak.watch(f"{MAPS}?watch=true&{initial}", 2)
    assert (first, present["metadata"]["name"]) == ("ADDED", "cm")
    assert (second, end["kind"]) == ("BOOKMARK", "ConfigMap")
    assert end["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    ((change, status),) = await speak.watch(
        f"{MAPS}?watch=true&resourceVersion=1&timeoutSeconds=1", 1
    )
    assert (change, status["metadata"]["name"]) == ("ADDED", "cm") or status["code"] == 410


async def test_watchers_of_each_encoding_have_their_own_frames(ask, speak):
    path = f"{MAPS}?watch=true&resourceVersion=1"
    streams = [
        (await ask.raw("GET", path, headers=headers)).body
        for headers in ({}, ONLY, {"accept": "application/json"}, ONLY)
    ]
    await ask.create(MAPS, "m")
    pieces = [await anext(stream) for stream in streams]
    for stream in streams:
        await stream.aclose()
    assert pieces[0] == pieces[2]
    assert pieces[1] == pieces[3]
    assert event(pieces[1][4:])[1] == json.loads(pieces[0])["object"]


async def test_partial_metadata_of_any_kind(ask, speak, replica_set):
    await ask("POST", SETS, replica_set)
    headers = {"accept": PROTOBUF + METADATA}
    status, one = await speak("GET", f"{SETS}/web", headers=headers)
    assert (status, one["apiVersion"], one["kind"]) == (
        200,
        "meta.k8s.io/v1",
        "PartialObjectMetadata",
    )
    status, listed = await speak("GET", SETS, headers=headers)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [each["metadata"] for each in listed["items"]] == [one["metadata"]]
    status, empty = await speak("GET", MAPS, headers=headers)
    assert (status, empty.get("items")) == (200, None)


async def test_custom_kinds_have_no_protobuf(ask, speak, replica_set):
    await ask("POST", SETS, replica_set)
    for path in (SETS, f"{SETS}/web", f"{SETS}?watch=true"):
        status, refused = await speak("GET", path)
        assert (status, refused["reason"]) == (406, "NotAcceptable")
        assert refused["message"].startswith("only the following media types are accepted: ")
    answer = await ask("GET", f"{SETS}/web", headers={"accept": f"{PROTOBUF},application/json"})
    assert answer["kind"] == "VirtualMachineInstanceReplicaSet"
    rather = {"accept": f"{PROTOBUF};q=0.9,application/json;q=0.1"}
    answer = await ask("GET", f"{SETS}/web", headers=rather)
    assert answer["kind"] == "VirtualMachineInstanceReplicaSet"
    status, refused = await speak("GET", f"{SETS}/none", headers=rather)
    assert (status, refused["reason"]) == (404, "NotFound")
    options = {"apiVersion": "kubevirt.io/v1", "kind": "DeleteOptions"}
    status, gone = await speak("DELETE", f"{SETS}/web", options, {"accept": PROTOBUF})
    assert status == 406, gone


async def test_common_kinds_in_protobuf(ask, speak, replica_set):
    await ask("POST", SETS, replica_set)
    status, scale = await speak("GET", f"{SETS}/web/scale")
    assert (status, scale["kind"], scale["spec"]) == (200, "Scale", {"replicas": 3})
    scale["spec"]["replicas"] = 0
    status, scale = await speak("PUT", f"{SETS}/web/scale", scale)
    assert (status, scale["spec"]) == (200, {})
    options = {"apiVersion": "kubevirt.io/v1", "kind": "DeleteOptions"}
    gone = await ask("DELETE", f"{SETS}/web", encode(options), {"content-type": PROTOBUF})
    assert gone.status == 200, gone.text


async def test_discovery_in_protobuf_and_other_documents_in_json(ask, speak):
    for path, kind in (
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/apis/apps/v1", "APIResourceList"),
    ):
        status, found = await speak("GET", path)
        assert (status, found["kind"]) == (200, kind)
        json_found = (await ask("GET", path)).document
        assert encode(found) == encode(json_found)
        headers = dict((await ask.raw("GET", path, headers=ONLY)).headers)
        assert "etag" not in headers  # which would be that of the JSON
    for path in ("/version", "/openapi/v3"):
        answer = await ask("GET", path, headers={"accept": PROTOBUF})
        assert (answer.status, type(answer.document)) == (200, dict)


async def test_the_etag_of_json_does_not_match_protobuf(ask, speak):
    for path in ("/apis", "/apis/apps", "/apis/apps/v1"):
        tag = dict((await ask.raw("GET", path)).headers)["etag"]
        headers = {"if-none-match": tag}
        assert (await ask.raw("GET", path, headers=headers)).status == 304
        assert (await speak("GET", path, headers=headers))[0] == 200


async def test_preferred_metadata_in_json_precedes_protobuf(ask):
    await ask.create(MAPS, "m", data={"a": "b"})
    header = f"{PROTOBUF}{METADATA.replace('v=v1;', 'v=v1beta1;')}, application/json"
    found = await ask("GET", f"{MAPS}/m", headers={"accept": header})
    assert (found["apiVersion"], found["kind"]) == ("meta.k8s.io/v1beta1", "PartialObjectMetadata")
    assert "data" not in found.document


async def test_tables_have_no_protobuf(ask):
    table = PROTOBUF + ";as=Table;v=v1;g=meta.k8s.io"
    refused = await ask("GET", MAPS, headers={"accept": table})
    assert (refused.status, refused["reason"]) == (406, "NotAcceptable")


async def test_a_write_is_not_rejected_for_the_form_of_its_response(ask, monkeypatch):
    def refuse(_document):
        raise writer.UnwritableError("no")

    monkeypatch.setattr(writer, "encode", refuse)
    headers = {"accept": PROTOBUF}
    made = await ask("POST", MAPS, {"metadata": {"name": "m"}}, headers)
    assert (made.status, made["kind"]) == (201, "ConfigMap")
    assert (await ask("GET", f"{MAPS}/m", headers=headers)).status == 406
    both = {"accept": f"{PROTOBUF},application/json;q=0.5"}
    assert (await ask("GET", f"{MAPS}/m", headers=both)).status == 200


async def test_encoding_a_long_list_yields_to_other_requests():
    item = {"metadata": {"name": "m"}, "data": {"x": "x" * 20_000}}
    listed = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": [item] * 12}
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    assert await in_protobuf.encode(json.dumps(listed).encode()) == encode(listed)
    beside.cancel()
    assert turns == 11  # two of them are more than a turn


@pytest.mark.parametrize("is_listed", [False, True])
async def test_large_objects_are_encoded_in_a_thread(ask, speak, is_listed):
    await ask.create(MAPS, "small", data={"x": "x"})
    await ask.create(MAPS, "large", data={f"k{index}": "" for index in range(5000)})
    threads, real = [], writer.content

    def content(name, document):
        threads.append(threading.current_thread() is threading.main_thread())
        return real(name, document)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "content", content)
        await speak("GET", f"{MAPS}/small")
        assert threads == [True]
        threads.clear()
        _, found = await speak("GET", MAPS if is_listed else f"{MAPS}/large")
    assert threads == ([True, False, True] if is_listed else [False])
    (large,) = [each for each in found.get("items", [found]) if len(each["data"]) == 5000]
    assert large["metadata"]["name"] == "large"


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_watch_encodes_large_objects_once_in_a_thread(ask, speak, is_new):
    path = f"{MAPS}?watch=true"
    if is_new:
        path += f"&resourceVersion={ask.server.store.revision}"
    threads, real = [], writer.content

    def content(name, document):
        threads.append(threading.current_thread() is threading.main_thread())
        return real(name, document)

    async def first_pieces():
        stream = (await speak.raw("GET", path, headers=ONLY)).body
        pieces = [await anext(stream) for _ in range(2)]
        await stream.aclose()
        return pieces

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "content", content)
        watchers = [asyncio.create_task(first_pieces()) for _ in range(3)] if is_new else []
        await asyncio.sleep(0)
        await ask.create(MAPS, "a-small", data={"x": "x"})
        await ask.create(MAPS, "large", data={f"k{index}": "" for index in range(5000)})
        watchers = watchers or [asyncio.create_task(first_pieces()) for _ in range(3)]
        pieces = [await each for each in watchers]
    assert pieces[0] == pieces[1] == pieces[2]
    frames = [event(piece[4:]) for piece in pieces[0]]
    assert [(kind, item["metadata"]["name"]) for kind, item in frames] == [
        ("ADDED", "a-small"),
        ("ADDED", "large"),
    ]
    assert threads.count(False) == 1
    assert len(threads) == (2 if is_new else 4)  # what is small and was there is no frame of all


@pytest.fixture
def writing(monkeypatch):
    """Holds what is written up, and counts how much that is at present and was at most."""
    real, state = in_protobuf.encode, SimpleNamespace(may=asyncio.Event(), now=0, most=0)

    async def written(body):
        state.now += 1
        state.most = max(state.most, state.now)
        await state.may.wait()
        state.now -= 1
        return await real(body)

    monkeypatch.setattr(in_protobuf, "encode", written)
    return state


async def test_long_responses_of_one_user_are_encoded_one_by_one(ask, speak, writing):
    for name in ("a", "b"):
        await ask.create(MAPS, name, data={"x": "x" * 100_000})
    other = Speaker(ask.server, User(name="bob", groups=("system:masters",)))
    async with asyncio.TaskGroup() as group:
        for each in (speak, speak, speak, other):
            group.create_task(each("GET", MAPS))
        for _ in range(50):
            await asyncio.sleep(0)
        assert writing.now == 2
        writing.may.set()
    assert writing.most == 2


async def test_a_user_with_many_pending_responses_gets_no_more(ask, speak, writing):
    writing.may.set()
    await ask.create(MAPS, "a", data={"x": "x" * 100_000})
    name = ask.user.name
    with ask.server.fairness.responses.reserve(name, 64 << 20):
        status, refused = await speak("GET", f"{MAPS}/a", encoded=False)
    assert (status, refused["reason"], writing.most) == (429, "TooManyRequests", 0)
    assert (await speak("GET", f"{MAPS}/a"))[0] == 200
    assert ask.server.fairness.responses.used == 0


async def test_large_options_are_decoded_in_a_thread(ask, speak, monkeypatch):
    await ask.create(MAPS, "a")
    beside = []

    async def to_thread(work, *arguments):
        beside.append(arguments[0].verb)
        return work(*arguments)

    monkeypatch.setattr(body.asyncio, "to_thread", to_thread)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["x" * 20_000]}
    status, refused = await speak("DELETE", f"{MAPS}/a", options)
    assert status == 422
    assert len(refused["message"]) < 1200
    assert beside == ["delete"]


@pytest.mark.parametrize(
    ("header", "form", "protobuf"),
    [
        (PROTOBUF, Form.PLAIN, True),
        (f"{PROTOBUF}, application/json", Form.PLAIN, False),
        (f"{PROTOBUF}, */*", Form.PLAIN, False),
        (f"application/json, {PROTOBUF}", Form.PLAIN, False),
        (f"{PROTOBUF}, application/json;q=0.9", Form.PLAIN, True),
        (f"{PROTOBUF};q=0.8, application/json;q=0.9", Form.PLAIN, False),
        (f"{PROTOBUF}, application/yaml", Form.PLAIN, False),
        (f"{PROTOBUF}, text/html", Form.PLAIN, True),
        (f"{PROTOBUF};stream=watch", Form.PLAIN, True),
        (f"{PROTOBUF}{METADATA}", Form.METADATA, True),
        (f"{PROTOBUF}{METADATA},application/json{METADATA}", Form.METADATA, False),
        (f"{PROTOBUF}{METADATA}, application/json", Form.METADATA, False),
        (f"{PROTOBUF}{METADATA}, */*", Form.METADATA, False),
        (f"application/json, {PROTOBUF}{METADATA}", Form.PLAIN, False),
        (f"{PROTOBUF}, {PROTOBUF}{METADATA}, application/json", Form.PLAIN, False),
        (f"{PROTOBUF}{METADATA};q=0.5, application/json;q=0.9", Form.PLAIN, False),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{PROTOBUF}", Form.PLAIN, True),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", Form.PLAIN, False),
        (f"{PROTOBUF};as=PartialObjectMetadata;v=v9;g=x,{PROTOBUF}", Form.PLAIN, True),
        (f"{PROTOBUF.upper()}", Form.PLAIN, True),
    ],
)
def test_protobuf_needs_a_higher_preference_than_json(header, form, protobuf):
    assert accept.prefers_protobuf(header) is protobuf
    assert accept.form(header, native=True) is form


def test_every_served_kind_is_tested():
    assert {(version, kind.name) for version, kind in SERVED} <= set(BY_KIND)
    assert message("core.v1.Pod").name == "core.v1.Pod"
