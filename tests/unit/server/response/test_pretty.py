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
def test_an_answer_is_a_line(path):
    assert laid_out(json_response(LINE), path) == LINE + b"\n"
    assert laid_out(json_response(LINE + b"\n"), path) == LINE + b"\n"


@pytest.mark.parametrize("value", ["1", "t", "true", "TRUE"])
def test_who_asks_for_lines_gets_them(value):
    asked = {"query": f"limit=5&pretty={value}", "headers": {"user-agent": "kubectl/v1"}}
    assert laid_out(json_response(LINE), **asked) == LINES
    assert laid_out(json_response(LINE, status=404), "/metrics", **asked) == LINES


@pytest.mark.parametrize("agent", ["curl/8.0", "Wget/1.2", "Mozilla/5.0 (X11)"])
def test_programs_that_show_answers_get_lines_unless_they_say_otherwise(agent):
    asked = {"headers": {"user-agent": agent}}
    assert laid_out(json_response(LINE), **asked) == LINES
    assert laid_out(json_response(LINE), query="pretty=", **asked) == LINES
    for value in ("0", "false", "please", "%ff"):
        told = laid_out(json_response(LINE), query=f"pretty={value}", **asked)
        assert told == (LINES if value == "%ff" else LINE + b"\n")


def test_what_is_no_object_stays_as_it_is():
    asked = {"query": "pretty=1"}
    assert laid_out(text_response("ok"), "/api/v1/x", **asked) == b"ok"
    assert laid_out(json_response(LINE), "/openapi/v3", **asked) == LINE
    assert laid_out(json_response(b"", status=200), **asked) == b""
    streamed = watch()
    assert laid_out(Response(headers=[*JSON_HEADERS], body=streamed), **asked) is streamed


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"b": [1, [], {}]}, "": [[{}], {"c": None}]},
        {"a": ["{[,:", 'a "{"', "\\", 'b\\"[[']},
        [[[[{str(number): [number]} for number in range(5000)]]]],
    ],
)
def test_how_large_something_becomes_is_known_before(document, monkeypatch):
    body = json.dumps(document, separators=(",", ":")).encode()
    lines = pretty.indented(body)
    monkeypatch.setattr(pretty, "MAX_INDENTED_BYTES", len(lines))
    assert laid_out(json_response(body), query="pretty=1") == lines
    monkeypatch.setattr(pretty, "MAX_INDENTED_BYTES", len(lines) - 1)
    monkeypatch.delattr(pretty, "indented")
    assert laid_out(json_response(body), query="pretty=1") == body + b"\n"


def test_an_etag_is_of_the_same_bytes_for_everybody():
    tag = ("etag", '"x"')
    for asked, kept in (("", [tag]), ("pretty=1", [])):
        told = Response(headers=[*JSON_HEADERS, tag], body=LINE)
        assert laid_out(told, query=asked) == (LINE + b"\n" if kept else LINES)
        assert [each for each in told.headers if each[0] == "etag"] == kept


def test_what_is_large_is_not_indented():
    wide = json.dumps(["x" * pretty.MAX_BYTES]).encode()
    deep = b"[" * 200 + b"1" + b",1" * 20_000 + b"]" * 200
    assert len(deep) < pretty.MAX_BYTES
    for body in (wide, deep):
        assert laid_out(json_response(body), query="pretty=1") == body + b"\n"
