"""Encoding of OpenAPI v2, decoded with the field numbers of gnostic's OpenAPIv2.proto."""

import json
import struct

from corral.api.openapi import gnostic
from corral.api.protobuf.wire import fields


def read(message):
    """The fields of a message, each with all of its values."""
    found = {}
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    return found


def only(message, *path):
    """Return the value at a path of fields, each present once."""
    for number in path:
        (message,) = read(message)[number]
    return message


SCHEMA = {
    "type": "object",
    "description": "A thing.",
    "required": ["a", "b"],
    "properties": {
        "a": {"type": "integer", "minimum": 1, "maximum": 2.5, "enum": [1, "two"]},
        "b": {"$ref": "#/definitions/Other", "description": "Another."},
        "c": {"type": "array", "items": {"type": "string", "maxLength": 300}, "uniqueItems": True},
        "d": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "e": {"additionalProperties": True},
    },
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
}


def test_schemas():
    message = gnostic.definitions({"Thing": SCHEMA})
    named = read(only(message, 1))
    assert named[1] == [b"Thing"]
    thing = read(named[2][0])
    assert thing[4] == [b"A thing."]
    assert thing[19] == [b"a", b"b"]
    assert read(thing[22][0])[1] == [b"object"]
    inner = {read(each)[1][0]: read(read(each)[2][0]) for each in read(thing[25][0])[1]}
    assert set(inner) == {b"a", b"b", b"c", b"d", b"e"}
    assert struct.unpack("<d", inner[b"a"][9][0]) == (1.0,)
    assert struct.unpack("<d", inner[b"a"][7][0]) == (2.5,)
    assert [only(value, 2) for value in inner[b"a"][20]] == [b"1", b'"two"']
    assert inner[b"b"][1] == [b"#/definitions/Other"]
    assert only(inner[b"c"][23][0], 1, 22, 1) == b"string"
    assert only(inner[b"c"][23][0], 1, 11) == 300
    assert inner[b"c"][16] == [1]
    assert only(inner[b"d"][21][0], 1, 22, 1) == b"boolean"
    assert only(inner[b"e"][21][0], 2) == 1
    (extension,) = thing[31]
    assert only(extension, 1) == b"x-kubernetes-group-version-kind"
    expected = only(extension, 2, 2)
    assert json.loads(expected) == SCHEMA["x-kubernetes-group-version-kind"]


def test_operations():
    item = {
        "parameters": [
            {"name": "name", "in": "path", "required": True, "type": "string", "uniqueItems": True}
        ],
        "patch": {
            "tags": ["core_v1"],
            "description": "Change it.",
            "operationId": "patchThing",
            "consumes": ["application/json-patch+json", "application/merge-patch+json"],
            "produces": ["application/json"],
            "parameters": [
                {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/x"}},
                {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": True},
            ],
            "responses": {"200": {"description": "OK", "schema": {"$ref": "#/y"}}},
            "x-kubernetes-action": "patch",
        },
    }
    named = read(only(gnostic.paths({"/things/{name}": item}), 2))
    assert named[1] == [b"/things/{name}"]
    path = read(named[2][0])
    varying = read(only(path[9][0], 1, 2, 4))
    assert (varying[1], varying[2], varying[4], varying[5]) == (
        [1],
        [b"path"],
        [b"name"],
        [b"string"],
    )
    patch = read(path[8][0])
    assert (patch[1], patch[3], patch[5]) == ([b"core_v1"], [b"Change it."], [b"patchThing"])
    assert patch[6] == [b"application/json"]
    assert len(patch[7]) == 2
    body, dry_run = patch[8]
    assert only(body, 1, 1, 5, 1) == b"#/x"
    query = read(only(dry_run, 1, 2, 3))
    assert (query[2], query[4], query[6]) == ([b"query"], [b"dryRun"], [b"string"])
    answer = read(only(patch[9][0], 1))
    assert answer[1] == [b"200"]
    assert only(answer[2][0], 1, 2, 1, 1) == b"#/y"
    assert only(patch[13][0], 2, 2) == b'"patch"'


def test_a_whole_document():
    message = gnostic.document("Kubernetes", "1", b"", gnostic.definitions({"Thing": {}}))
    assert only(message, 1) == b"2.0"
    assert only(message, 2, 1) == b"Kubernetes"
    assert only(message, 2, 2) == b"1"
    assert only(message, 9, 1, 1) == b"Thing"
