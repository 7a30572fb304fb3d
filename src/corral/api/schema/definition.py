"""The schema of JSONSchemaProps: the keywords of a CustomResourceDefinition; recursive."""

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_FLAG: Final = {"type": "boolean"}
_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_SCHEMA_OR_FLAG: Final = {**_ANYTHING, "format": "json-schema-or-flag"}
_RULE: Final = {
    "type": "object",
    "required": ["rule"],
    "properties": {
        "fieldPath": _TEXT,
        "message": _TEXT,
        "messageExpression": _TEXT,
        "optionalOldSelf": _FLAG,
        "reason": _TEXT,
        "rule": _TEXT,
    },
}

JSON_SCHEMA: Final[dict[str, Any]] = {"type": "object"}
_SCHEMAS: Final = {"type": "array", "items": JSON_SCHEMA}
_NAMED: Final = {"type": "object", "additionalProperties": JSON_SCHEMA}
JSON_SCHEMA["properties"] = {
    **dict.fromkeys(("description", "format", "id", "pattern", "title", "type"), _TEXT),
    **dict.fromkeys(("$ref", "$schema", "x-kubernetes-list-type", "x-kubernetes-map-type"), _TEXT),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems"), _FLAG),
    **dict.fromkeys(
        (
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ),
        _FLAG,
    ),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties"), _WHOLE),
    **dict.fromkeys(("minItems", "minLength", "minProperties"), _WHOLE),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _TEXTS),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _SCHEMAS),
    **dict.fromkeys(("additionalProperties", "items"), _SCHEMA_OR_FLAG),
    **dict.fromkeys(("definitions", "patternProperties", "properties"), _NAMED),
    **dict.fromkeys(
        ("additionalItems", "default", "dependencies", "example"),
        _ANYTHING,
    ),
    "enum": {"type": "array", "items": _ANYTHING},
    "externalDocs": {"type": "object", "properties": {"description": _TEXT, "url": _TEXT}},
    "not": JSON_SCHEMA,
    "x-kubernetes-validations": {"type": "array", "items": _RULE},
}
