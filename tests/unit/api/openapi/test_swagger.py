"""OpenAPI v2 for old clients: never stricter than the schemas of the server."""

import pytest

from corral.api.openapi import swagger

REFERENCE = {"$ref": "#/components/schemas/io.example.Thing"}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (REFERENCE, {"$ref": "#/definitions/io.example.Thing"}),
        (
            {"description": "One.", "allOf": [REFERENCE], "default": {}},
            {"description": "One.", "$ref": "#/definitions/io.example.Thing"},
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
            {"type": "string", "format": "int-or-string"},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": REFERENCE}}},
            {
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": {"$ref": "#/definitions/io.example.Thing"}}
                },
            },
        ),
        ({"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}, {}),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": REFERENCE}, None),
        ({"type": "array"}, {}),
        (
            {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "description": "Whatever.",
                "properties": {"spec": {"type": "object"}},
                "x-kubernetes-group-version-kind": [{"kind": "Thing"}],
            },
            {"type": "object", "x-kubernetes-group-version-kind": [{"kind": "Thing"}]},
        ),
        (
            {
                "type": "object",
                "required": ["a", "b"],
                "properties": {
                    "a": {"type": "string", "nullable": True},
                    "b": {"type": "string", "anyOf": [{"pattern": "x"}], "not": {}},
                },
            },
            {
                "type": "object",
                "required": ["b"],
                "properties": {"a": {}, "b": {"type": "string"}},
            },
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ),
        (  # fields may be named like the words of schemas
            {"type": "object", "properties": {"default": {"type": "string"}, "not": REFERENCE}},
            {
                "type": "object",
                "properties": {
                    "default": {"type": "string"},
                    "not": {"$ref": "#/definitions/io.example.Thing"},
                },
            },
        ),
    ],
)
def test_schemas(new, old):
    if old is None:
        old = {"x-kubernetes-preserve-unknown-fields": True}
    assert swagger.schema(new) == old


def test_operations():
    content = {"application/json": {"schema": REFERENCE}}
    item = {
        "parameters": [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ],
        "put": {
            "operationId": "replaceThing",
            "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
            "requestBody": {"required": True, "content": content},
            "responses": {"200": {"description": "OK", "content": content}},
        },
    }
    reference = {"$ref": "#/definitions/io.example.Thing"}
    assert swagger.path(item) == {
        "parameters": [
            {"name": "name", "in": "path", "required": True, "type": "string", "uniqueItems": True}
        ],
        "put": {
            "operationId": "replaceThing",
            "parameters": [
                {"name": "body", "in": "body", "required": True, "schema": reference},
                {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": True},
            ],
            "consumes": ["application/json"],
            "produces": ["application/json"],
            "responses": {"200": {"description": "OK", "schema": reference}},
        },
    }
