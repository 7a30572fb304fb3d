"""Tests of answers in YAML, and of which form of an answer is chosen."""

import asyncio
import json
import threading
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from corral.api import yaml
from corral.api.errors import NotAcceptable, Timeout
from corral.api.request import Request
from corral.server.flowcontrol.memory_budget import Budget
from corral.server.request import accept
from corral.server.request.accept import Form
from corral.server.request.call import json_response
from corral.server.response import yaml as in_yaml

MAPS = "/api/v1/namespaces/default/configmaps"
YAML = {"accept": "application/yaml"}
AGGREGATED = {"accept": "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
HARD = {
    "lines": "a\n\n  b\n",
    "quoted": "no",
    "number": "012",
    "text": "'x': \"y\" # z\u2028",
    "e": "",
}


@pytest.fixture
async def maps(ask):
    for name in ("a", "b"):
        await ask.create(MAPS, name, data=HARD)
    return ask


def read(answer):
    assert answer.headers["content-type"] == "application/yaml"
    return yaml.load(answer.text)


@pytest.mark.parametrize(
    "path",
    [
        f"{MAPS}/a",
        MAPS,
        f"{MAPS}?labelSelector=a=b",
        f"{MAPS}/none",
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
    ],
)
async def test_yaml_and_json_have_the_same_content(maps, path):
    answer = await maps("GET", path, headers=YAML)
    plain = await maps("GET", path)
    assert read(answer) == plain.document
    assert answer.status == plain.status


async def test_a_long_list_in_yaml_is_complete(maps):
    for index in range(60):
        await maps.create(MAPS, f"c{index}", data=HARD)
    assert read(await maps("GET", MAPS, headers=YAML)) == (await maps("GET", MAPS)).document


@pytest.mark.parametrize(
    "name",
    [
        "#c",
        "no",
        "12",
        "",
        "x\nmetadata: {name: forged}\nzz",
        "x: [forged]\n",
        "- a",
        "<<",
        "null",
        "? a",
        "'\"",
        "---",
        " \u2028\x00\t",
        "é" * 200,
        "lines\n" * 100,
    ],
)
def test_a_list_in_yaml_has_the_kind_of_json(name):
    document = {"metadata": {"name": "a"}, name: [1, "a", {"b": [2]}], "z": [[], {}]}
    assert yaml.load(in_yaml.encode(json.dumps(document).encode())) == document


def test_deeply_nested_objects_in_yaml():
    inner = "a"
    for _ in range(97):
        inner = {"a": [inner]}
    document = {"items": [{"deep": inner}]}
    assert yaml.load(in_yaml.encode(json.dumps(document).encode())) == document


async def test_writes_can_have_responses_in_yaml(ask):
    made = await ask("POST", MAPS, {"metadata": {"name": "a"}}, headers=YAML)
    assert (made.status, read(made)["metadata"]["name"]) == (201, "a")
    refused = await ask("POST", MAPS, {"metadata": {"name": "a"}}, headers=YAML)
    assert (refused.status, read(refused)["reason"]) == (409, "AlreadyExists")


async def test_tables_in_yaml(maps):
    header = {"accept": "application/yaml;as=Table;v=v1;g=meta.k8s.io"}
    table = read(await maps("GET", MAPS, headers=header))
    assert (table["kind"], len(table["rows"])) == ("Table", 2)


async def test_large_objects_are_sent_in_json_or_not_acceptable(maps, monkeypatch):
    monkeypatch.setattr(in_yaml, "MAX_BYTES", 100)
    refused = await maps("GET", MAPS, headers=YAML)
    assert refused.status == 406
    assert "request pages" in refused["message"]
    both = await maps("GET", MAPS, headers={"accept": "application/yaml, application/json;q=0.5"})
    assert (both.status, len(both["items"])) == (200, 2)


async def test_watches_have_no_yaml(maps):
    refused = await maps("GET", f"{MAPS}?watch=true", headers=YAML)
    assert refused.status == 406
    assert "application/json;stream=watch" in refused.text
    header = {"accept": "application/yaml, application/json"}
    frames = await maps.frames(f"{MAPS}?watch=true&timeoutSeconds=1", headers=header)
    assert [frame["type"] for frame in frames][:2] == ["ADDED", "ADDED"]


async def test_other_content_is_not_converted(ask):
    for path in ("/version", "/openapi/v2"):
        answer = await ask("GET", path, headers={"accept": "application/yaml, */*"})
        json.loads(answer.text)


async def test_many_values_count_as_large(maps, monkeypatch):
    monkeypatch.setattr(in_yaml, "MAX_VALUES", 20)
    assert (await maps("GET", MAPS, headers=YAML)).status == 406


def test_encoding_stops_at_the_maximum_size():
    zeros = [0] * 20_000
    for _ in range(150):
        zeros = [zeros]
    body = json.dumps({"metadata": {"name": "a"}, "spec": zeros}).encode()
    assert len(body) < 64 << 10
    tracemalloc.start()
    with pytest.raises(NotAcceptable, match=f"more than {4 << 20} bytes as YAML"):
        in_yaml.encode(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20


async def test_a_write_is_not_rejected_for_the_form_of_its_response(maps, monkeypatch):
    monkeypatch.setattr(in_yaml, "MAX_BYTES", 100)
    made = await maps("POST", MAPS, {"metadata": {"name": "c"}, "data": {"a": "x" * 2000}}, YAML)
    assert (made.status, made["kind"]) == (201, "ConfigMap")


async def test_the_etag_of_yaml_matches(ask):
    for path, headers in (("/apis", YAML), ("/api/v1", YAML), ("/apis", AGGREGATED)):
        tag = (await ask("GET", path, headers=headers)).headers["etag"]
        answer = await ask("GET", path, headers=headers | {"if-none-match": tag})
        assert (answer.status, answer.text, answer.headers["etag"]) == (304, "", tag)


async def test_the_etag_of_json_does_not_match_yaml(ask):
    tag = (await ask("GET", "/apis")).headers["etag"]
    answer = await ask("GET", "/apis", headers=YAML | {"if-none-match": tag})
    assert read(answer)["kind"] == "APIGroupList"
    own = answer.headers["etag"]
    assert own != tag
    assert (await ask("GET", "/apis", headers={"if-none-match": own})).status == 200


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_in_yaml(ask, path):
    answer = await ask("GET", path, headers=AGGREGATED)
    assert answer.headers["content-type"] == AGGREGATED["accept"]
    plain = {"accept": AGGREGATED["accept"].replace("yaml", "json")}
    assert yaml.load(answer.text) == (await ask("GET", path, headers=plain)).document


async def test_discovery_has_the_preferred_form_and_media_type(ask):
    aggregated, plain = AGGREGATED["accept"], "application/yaml"
    for header, kind, written in (
        (f"{aggregated}, application/json", "APIGroupDiscoveryList", aggregated),
        (f"application/json, {aggregated}", "APIGroupList", "application/json"),
        (f"{aggregated};q=0.5, application/yaml", "APIGroupList", plain),
        (aggregated.replace("yaml", "protobuf") + ", */*", "APIGroupList", "application/json"),
        (aggregated.replace("v2", "v9") + ", application/yaml", "APIGroupList", plain),
    ):
        answer = await ask("GET", "/apis", headers={"accept": header})
        assert answer.headers["content-type"] == written, header
        assert yaml.load(answer.text)["kind"] == kind


async def test_endpoints_without_yaml_ignore_the_accept_header(ask, monkeypatch):
    def fail(_header):
        raise AssertionError("the header was read")

    monkeypatch.setattr(accept, "prefers_yaml", fail)
    assert (await ask("GET", "/healthz", headers=YAML)).status == 200
    assert (await ask("GET", "/nosuch", headers=YAML)).status == 404


@pytest.fixture
async def thread(ask, monkeypatch):
    """The thread that writes YAML: it waits for the test, and records the names that it wrote."""
    may, names = threading.Event(), []

    def write(body):
        assert may.wait(60)
        names.append(json.loads(body)["metadata"]["name"])
        return b"{}"

    for name in ("a1", "a2", "a3", "b1"):
        await ask.create(MAPS, name, data={"a": "x" * 2000})
    monkeypatch.setattr(in_yaml, "encode", write)
    yield SimpleNamespace(may=may, names=names)
    may.set()


async def turns():
    """Let who can go on without the thread do so."""
    for _ in range(100):
        await asyncio.sleep(0)


async def begun(group, asker, *names):
    tasks = []
    for name in names:
        request = asker("GET", f"{MAPS}/{name}", headers=YAML)
        tasks.append(group.create_task(request))
        await turns()
    return tasks


async def test_users_take_turns_at_encoding_yaml(ask, thread):
    async with asyncio.TaskGroup() as group:
        await begun(group, ask.as_user("ann", "system:masters"), "a1", "a2", "a3")
        await begun(group, ask.as_user("bob", "system:masters"), "b1")
        thread.may.set()
    assert thread.names.index("b1") <= 1


async def test_responses_waiting_for_yaml_are_limited_per_user(ask, thread):
    ask.server._encodings._yaml._pending = Budget(5000, 100_000, small=1000)
    ann = ask.as_user("ann", "system:masters")
    async with asyncio.TaskGroup() as group:
        await begun(group, ann, "a1", "a2")
        refused = await ann("GET", f"{MAPS}/a3", headers=YAML)
        assert (refused.status, refused["reason"]) == (429, "TooManyRequests")
        both = {"accept": "application/yaml, */*"}
        assert (await ann("GET", f"{MAPS}/a3", headers=both))["kind"] == "ConfigMap"
        bob = ask.as_user("bob", "system:masters")
        other = await begun(group, bob, "b1")
        thread.may.set()
    assert other[0].result().status == 200
    assert ask.server._encodings._yaml._pending.used == 0


async def test_a_user_with_many_pending_responses_gets_no_more_yaml(ask, thread):
    thread.may.set()
    answers = ask.server.fairness.responses
    monopoly = answers.reserve("ann", 64 << 20)
    ann = ask.as_user("ann", "system:masters")
    async with asyncio.TaskGroup() as group:
        thread.may.clear()
        pending = await begun(group, ann, "a1")
        with monopoly:
            thread.may.set()
            assert (await pending[0]).status == 429


async def test_waiting_for_yaml_has_a_timeout(ask, thread):
    """As one who comes by the network: components of the process have deadlines of their own."""
    server = ask.server
    server.authenticator = replace(server.authenticator, tokens={"t": ask.user})
    answers = []

    async def get(name, query):
        headers = YAML | {"authorization": "Bearer t"}
        request = Request(method="GET", path=f"{MAPS}/{name}", headers=headers, query=query)
        answers.append((name, (await server.handle(request)).status))

    async with asyncio.TaskGroup() as group:
        group.create_task(get("a1", "timeout=20s"))
        await turns()
        group.create_task(get("a2", "timeout=50ms"))
        async with asyncio.timeout(60):
            while not answers:
                await asyncio.sleep(0.01)
        thread.may.set()
    assert answers == [("a2", 504), ("a1", 200)]
    assert thread.names == ["a1"]


async def test_a_cancelled_encoding_counts_until_its_thread_is_done(ask, thread):
    """Else its memory would be given to others, who find the thread taken."""
    waiting = ask.server._encodings._yaml._pending
    soon = asyncio.get_running_loop().time() + 0.5
    body = json.dumps({"metadata": {"name": "a"}, "data": {"a": "x" * 2000}}).encode()
    header = {"accept": "application/yaml, */*"}
    request = Request(method="GET", path=f"{MAPS}/a", headers=header)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            ask.server._encodings._yaml.text(request, json_response(body), soon)
        )
        await asyncio.sleep(1)
        assert waiting.used == len(body)
        assert not task.done()
        thread.may.set()
    assert task.result() is None
    assert (thread.names, waiting.used) == (["a"], 0)


async def test_only_reads_are_rejected_for_the_time_of_encoding_yaml(ask):
    """Responses of writes are JSON, as are those that the client accepts in JSON, too."""
    over = asyncio.get_running_loop().time()
    body = json.dumps({"metadata": {"name": "a"}, "data": {"a": "x" * 2000}}).encode()

    async def encoded(method, header):
        request = Request(method=method, path=f"{MAPS}/a", headers={"accept": header})
        return await ask.server._encodings._yaml.text(request, json_response(body), over)

    for method, header in (
        ("PUT", "application/yaml"),
        ("DELETE", "application/yaml"),
        ("GET", "application/yaml, */*"),
    ):
        assert await encoded(method, header) is None
    with pytest.raises(Timeout):
        await encoded("GET", "application/yaml")


async def test_rejections_of_large_yaml_are_counted(ask, monkeypatch):
    monkeypatch.setattr(in_yaml, "MAX_BYTES", 100)
    counted = []
    monkeypatch.setattr(
        ask.server._metrics,
        "record_response",
        lambda _asked, status, _seconds: counted.append(status),
    )
    await ask.create(MAPS, "a", data={"a": "x" * 2000})
    assert (await ask("GET", f"{MAPS}/a", headers=YAML)).status == 406
    assert counted == [201, 406]


@pytest.mark.parametrize(
    ("header", "form", "in_yaml"),
    [
        ("", Form.PLAIN, False),
        ("*/*", Form.PLAIN, False),
        ("application/yaml, application/json", Form.PLAIN, True),
        ("application/json, application/yaml", Form.PLAIN, False),
        ("application/json;q=0.5, application/yaml", Form.PLAIN, True),
        ("application/yaml;q=0, application/json;q=0.1", Form.PLAIN, False),
        ("application/yaml;q=x, application/json;q=0.9", Form.PLAIN, True),
        ("text/html, application/yaml;q=0.1", Form.PLAIN, True),
        ("*/*, application/yaml", Form.PLAIN, True),
        ("*/*, application/*, application/json, application/yaml", Form.PLAIN, False),
        ("*/*, application/yaml;q=0.9", Form.PLAIN, False),
        ("application/YAML", Form.PLAIN, True),
        ("application/yaml" + ", text/html" * 6000, Form.PLAIN, True),
        ("text/html;x=" + "x" * 6000 + ", application/yaml", Form.PLAIN, False),
        ("application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml", Form.TABLE, False),
        ("application/json;as=Table;v=v9;g=meta.k8s.io, application/yaml", Form.PLAIN, True),
    ],
)
def test_the_preferred_media_type_is_chosen(header, form, in_yaml):
    assert accept.form(header) is form
    assert accept.prefers_yaml(header) is in_yaml


async def test_media_types_are_case_insensitive(maps):
    read(await maps("GET", f"{MAPS}/a", headers={"accept": "application/YAML"}))


def test_the_parsed_length_of_an_accept_header_is_limited():
    many = ",".join(f"a/{index}" for index in range(10_000))
    assert len(accept.medias(many)) == accept.MAX_RANGES
    tracemalloc.start()
    for index in range(300):
        accept.medias(f"a/{index}," + "a," * 32_000)
        accept.form(f"application/json;i={index}," + "a;" * 32_000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4 << 20


def test_a_long_header_without_a_complete_range_is_ignored():
    header = "application/yaml;x=" + "x" * 6000
    accept.require_stream_type(header, native=True)
    assert accept.form(header) is Form.PLAIN
