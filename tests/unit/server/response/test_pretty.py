"""Tests of how answers in JSON are laid out."""

import json

import pytest

from corral.api.request import Request, Response
from corral.server.request.call import JSON_HEADERS, json_response
from corral.server.response import pretty
from corral.server.response.plain_text import text_response

MAPS = "/api/v1/namespaces/default/configmaps"
LINE = b'{"a":{"b":[1]}}'
LINES = b'{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}'


async def watch():
    yield LINE


def laid_out(response, path=MAPS, **about):
    pretty.format_body(Request(method="GET", path=path, **about), response)
    return response.body


@pytest.mark.parametrize("path", [MAPS, "/api", "/apis", "/apis/apps/v1"])
def test_responses_are_one_line_by_default(path):
    assert laid_out(json_response(LINE), path) == LINE + b"\n"
    assert laid_out(json_response(LINE + b"\n"), path) == LINE + b"\n"


@pytest.mark.parametrize("value", ["1", "t", "true", "TRUE"])
def test_pretty_indents_responses(value):
    request = {"query": f"limit=5&pretty={value}", "headers": {"user-agent": "kubectl/v1"}}
    assert laid_out(json_response(LINE), **request) == LINES
    assert laid_out(json_response(LINE, status=404), "/metrics", **request) == LINES


@pytest.mark.parametrize("agent", ["curl/8.0", "Wget/1.2", "Mozilla/5.0 (X11)"])
def test_curl_and_browsers_get_indented_responses_by_default(agent):
    request = {"headers": {"user-agent": agent}}
    assert laid_out(json_response(LINE), **request) == LINES
    assert laid_out(json_response(LINE), query="pretty=", **request) == LINES
    for value in ("0", "false", "please", "%ff"):
        body = laid_out(json_response(LINE), query=f"pretty={value}", **request)
        assert body == (LINES if value == "%ff" else LINE + b"\n")


def test_other_content_is_not_indented():
    request = {"query": "pretty=1"}
    assert laid_out(text_response("ok"), "/api/v1/x", **request) == b"ok"
    assert laid_out(json_response(LINE), "/openapi/v3", **request) == LINE
    assert laid_out(json_response(b"", status=200), **request) == b""
    streamed = watch()
    assert laid_out(Response(headers=[*JSON_HEADERS], body=streamed), **request) is streamed


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"b": [1, [], {}]}, "": [[{}], {"c": None}]},
        {"a": ["{[,:", 'a "{"', "\\", 'b\\"[[']},
        [[[[{str(number): [number]} for number in range(5000)]]]],
    ],
)
def test_the_indented_size_is_computed_before(document, monkeypatch):
    body = json.dumps(document, separators=(",", ":")).encode()
    lines = pretty.indented(body)
    monkeypatch.setattr(pretty, "MAX_INDENTED_BYTES", len(lines))
    assert laid_out(json_response(body), query="pretty=1") == lines
    monkeypatch.setattr(pretty, "MAX_INDENTED_BYTES", len(lines) - 1)
    monkeypatch.delattr(pretty, "indented")
    assert laid_out(json_response(body), query="pretty=1") == body + b"\n"


def test_indented_responses_have_no_etag():
    tag = ("etag", '"x"')
    for query, kept in (("", [tag]), ("pretty=1", [])):
        response = Response(headers=[*JSON_HEADERS, tag], body=LINE)
        assert laid_out(response, query=query) == (LINE + b"\n" if kept else LINES)
        assert [each for each in response.headers if each[0] == "etag"] == kept


def test_large_responses_are_not_indented():
    wide = json.dumps(["x" * pretty.MAX_BYTES]).encode()
    deep = b"[" * 200 + b"1" + b",1" * 20_000 + b"]" * 200
    assert len(deep) < pretty.MAX_BYTES
    for body in (wide, deep):
        assert laid_out(json_response(body), query="pretty=1") == body + b"\n"
