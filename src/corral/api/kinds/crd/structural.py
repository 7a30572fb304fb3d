"""Validation of a definition's schema: it must be structural (apiextensions-apiserver).

A structural schema specifies the type of each field outside of ``allOf``, ``anyOf``, ``oneOf`` and
``not`` (its value validations), which may only restrict values further: so pruning and defaulting
do not depend on the values of a document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from corral.api.encoding import copied
from corral.api.errors import Cause
from corral.api.kinds.causes import forbidden, invalid, required, unsupported
from corral.api.kinds.crd import cel_rule_checks, cel_rules
from corral.api.kinds.crd.embedded_resources import EMBEDDED
from corral.api.schema import Schema
from corral.api.schema.bounds import pattern_fault
from corral.api.schema.combinations import JUNCTORS, is_int_or_string

SchemaProps = Mapping[str, Any]

DEEPEST: Final = 120
"""The most levels of nested objects and lists: deeper ones would exceed the stack."""
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = {
    "id": "id is not supported",
    "additionalItems": "additionalItems is not supported",
    "patternProperties": "patternProperties is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "$ref": "$ref is not supported",
}
_NOT_NESTED: Final = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "externalDocs": "must be undefined to be structural",
    _PRESERVE_UNKNOWN: "must be false to be structural",
    EMBEDDED: "must be false to be structural",
    _INT_OR_STRING: "must be false to be structural",
    _LIST_KEYS: "must be empty to be structural",
    _LIST_TYPE: "must be undefined to be structural",
    _MAP_TYPE: "must be undefined to be structural",
    cel_rules.RULES: "must be empty to be structural",
}
"""Keywords that are forbidden in value validations."""
_ROOT, _ITEM, _FIELD = "the root", "specified array items", "specified object fields"


def check(path: str, schema: SchemaProps) -> Iterator[Cause]:
    """Check the schema of a version."""
    if _depth(schema) > DEEPEST:
        yield forbidden(path, f"must not be deeper than {DEEPEST} levels")
        return
    faults = [*_check_structural(path, schema, _ROOT)]
    yield from faults
    if not faults:
        yield from _check_defaults(
            path, schema, cel_rules.Rules(schema) or None, cel_rules.Budget()
        )


def field_at(schema: SchemaProps, names: Sequence[str]) -> SchemaProps | None:
    """Return the schema of a field of an object; None if there is no such field."""
    for name in names:
        inner = (schema.get("properties") or {}).get(name)
        if not isinstance(inner, Mapping):
            return None
        schema = inner
    return schema


def is_schema(value: object) -> bool:
    """Return whether ``items`` or ``additionalProperties`` has a schema, not a boolean."""
    return isinstance(value, Mapping)


def _depth(schema: Any) -> int:
    """Return the nesting depth of a schema, or any depth over DEEPEST if it is deeper."""
    deepest, pending = 0, [(schema, 0)]
    while pending:
        value, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(value, Mapping):
            pending += ((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            pending += ((inner, depth + 1) for inner in value)
        if deepest > DEEPEST:
            break
    return deepest


def _check_structural(
    path: str, schema: SchemaProps, level: str, uncorrelatable: str = ""
) -> Iterator[Cause]:
    """Check a schema outside of value validations.

    ``uncorrelatable`` is the path of a list around it whose new items cannot be matched with old
    ones, if there is one.
    """
    yield from _check_keywords(path, schema)
    yield from _check_type(path, schema, level)
    yield from _check_extensions(path, schema)
    if level == _ROOT or schema.get(EMBEDDED):
        yield from _check_metadata(path, schema, is_root=level == _ROOT)
    yield from _check_nested_schemas(path, schema, level, uncorrelatable)
    yield from _check_value_validations(path, schema, schema)
    resource = {**schema, EMBEDDED: True} if level == _ROOT else schema
    yield from cel_rule_checks.check_rules(f"{path}.{cel_rules.RULES}", resource, uncorrelatable)


def _check_keywords(path: str, schema: SchemaProps) -> Iterator[Cause]:
    """Check for OpenAPI keywords that Kubernetes does not support, and for valid patterns."""
    for word, why in _UNSUPPORTED.items():
        if word in schema:
            yield forbidden(f"{path}.{word}", why)
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    if "pattern" in schema and (fault := pattern_fault(schema["pattern"])):
        why = f"must be a valid regular expression, but isn't: {fault}"
        yield invalid(f"{path}.pattern", schema["pattern"], why)


def _check_type(path: str, schema: SchemaProps, level: str) -> Iterator[Cause]:
    kind = schema.get("type", "")
    if kind == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        yield forbidden(f"{path}.type", why)
    elif kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if schema.get(EMBEDDED) and kind != "object":
        why = f"must be object if {EMBEDDED} is true"
        yield invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)
    elif not kind and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE_UNKNOWN):
        at_root = level == _ROOT
        yield required(f"{path}.type", f"must not be empty {'at' if at_root else 'for'} {level}")
    elif level == _ROOT and kind != "object" and kind:
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _check_extensions(path: str, schema: SchemaProps) -> Iterator[Cause]:
    """Check the combination of ``x-kubernetes-`` extensions."""
    if schema.get(_INT_OR_STRING):
        for word in (_PRESERVE_UNKNOWN, EMBEDDED):
            if schema.get(word):
                fault = f"must be false if {_INT_OR_STRING} is true"
                yield invalid(f"{path}.{word}", schema[word], fault)
        if schema.get("type"):
            why = f"must be empty if {_INT_OR_STRING} is true"
            yield invalid(f"{path}.type", schema["type"], why)
    yield from _check_embedded(path, schema)
    if schema.get(_PRESERVE_UNKNOWN) is False:
        why = "must be true or undefined"
        yield invalid(f"{path}.{_PRESERVE_UNKNOWN}", value=False, fault=why)
    yield from _check_list_type(path, schema)
    if (kind := schema.get(_MAP_TYPE)) is not None:
        if schema.get("type") != "object":
            fault = f"must be object if {_MAP_TYPE} is specified"
            yield invalid(f"{path}.type", schema.get("type", ""), fault)
        if kind not in ("atomic", "granular"):
            yield unsupported(f"{path}.{_MAP_TYPE}", kind, ("atomic", "granular"))


def _check_embedded(path: str, schema: SchemaProps) -> Iterator[Cause]:
    if schema.get(EMBEDDED):
        if "additionalProperties" in schema:
            why = f"must not be used if {EMBEDDED} is set"
            yield forbidden(f"{path}.additionalProperties", why)
        if not schema.get(_PRESERVE_UNKNOWN) and not schema.get("properties"):
            why = f"must not be empty if {EMBEDDED} is true without {_PRESERVE_UNKNOWN}"
            yield required(f"{path}.properties", why)


def _check_list_type(path: str, schema: SchemaProps) -> Iterator[Cause]:
    kind, keys = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or ()
    if kind is not None:
        if schema.get("type") != "array":
            fault = f"must be array if {_LIST_TYPE} is specified"
            yield invalid(f"{path}.type", schema.get("type", ""), fault)
        if kind not in ("atomic", "set", "map"):
            yield unsupported(f"{path}.{_LIST_TYPE}", kind, ("atomic", "set", "map"))
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _check_item_type(f"{path}.items", items, kind)
    if kind != "map":
        if keys:
            fault = f"must be map if {_LIST_KEYS} is non-empty"
            where = f"{path}.{_LIST_TYPE}"
            yield invalid(where, kind, fault) if kind else required(where, fault)
        return
    if not keys:
        yield required(f"{path}.{_LIST_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        fault = f"must be object if parent array's {_LIST_TYPE} is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), fault)
    yield from _check_list_keys(path, items, keys)


def _check_item_type(path: str, items: SchemaProps, kind: str | None) -> Iterator[Cause]:
    """Check items of sets and maps: not nullable, and in sets atomic."""
    if kind in ("set", "map") and items.get("nullable"):
        yield forbidden(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is {kind}")
    if kind != "set":
        return
    fault = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(_LIST_TYPE, "atomic") != "atomic":
        yield invalid(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], fault)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield invalid(f"{path}.{_MAP_TYPE}", items.get(_MAP_TYPE), fault)


def _check_list_keys(path: str, items: SchemaProps, keys: Sequence[str]) -> Iterator[Cause]:
    fields = items.get("properties") or {}
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        where = f"{path}.{_LIST_KEYS}[{index}]"
        if first.setdefault(key, index) < index:
            yield Cause(where, f'Duplicate value: "{key}"', "FieldValueDuplicate")
        if key not in fields:
            fault = "entries must all be names of item properties"
            yield invalid(where, key, fault)
            continue
        here = f"{path}.items.properties[{key}]"
        if fields[key].get("type") in ("array", "object"):
            fault = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield invalid(f"{here}.type", fields[key]["type"], fault)
        if fields[key].get("nullable"):
            why = f"this property is in {_LIST_KEYS}, so it cannot be nullable"
            yield forbidden(f"{here}.nullable", why)
        if key not in (items.get("required") or ()) and fields[key].get("default") is None:
            why = (
                f"this property is in {_LIST_KEYS}, so it must have a default or be a required "
                "property"
            )
            yield required(f"{here}.default", why)


def _check_metadata(path: str, schema: SchemaProps, *, is_root: bool) -> Iterator[Cause]:
    """Check that the schema restricts no metadata but the name."""
    properties = schema.get("properties") or {}
    for field in ("kind", "apiVersion"):
        kind = (properties.get(field) or {"type": "string"}).get("type", "")
        if kind != "string":
            yield invalid(f"{path}.properties[{field}].type", kind, "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    here = f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid(f"{here}.type", metadata.get("type", ""), "must be object")
    if is_root:
        more = set(metadata) - {"type", "description", "properties", "default"}
        names = set(metadata.get("properties") or ()) - {"name", "generateName"}
        if more or names:
            why = (
                "must not specify anything other than name and generateName, but metadata is "
                "implicitly specified"
            )
            yield forbidden(here, why)


def _check_nested_schemas(
    path: str, schema: SchemaProps, level: str, uncorrelatable: str
) -> Iterator[Cause]:
    """Check ``properties``, ``items`` and ``additionalProperties``."""
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    if rest is not None:
        if level == _ROOT:
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if properties and (rest is False or isinstance(rest, Mapping)):
            why = "additionalProperties and properties are mutual exclusive"
            yield forbidden(f"{path}.additionalProperties", why)
        if isinstance(rest, Mapping):
            yield from _check_structural(
                f"{path}.additionalProperties", rest, _FIELD, uncorrelatable
            )
        elif not isinstance(rest, bool):
            yield invalid(f"{path}.additionalProperties", rest, "must be a schema or a boolean")
    is_bound = level == _ROOT or schema.get(EMBEDDED)
    for name, inner in properties.items():
        if not (is_bound and name == "metadata"):
            yield from _check_structural(
                f"{path}.properties[{name}]", inner, _FIELD, uncorrelatable
            )
    yield from _check_items(path, schema, uncorrelatable)


def _check_items(path: str, schema: SchemaProps, uncorrelatable: str) -> Iterator[Cause]:
    items = schema.get("items")
    if items is None:
        if schema.get("type") == "array":
            yield required(f"{path}.items", "must be specified")
    elif not isinstance(items, Mapping):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    else:
        uncorrelatable = uncorrelatable or ("" if schema.get(_LIST_TYPE) == "map" else path)
        yield from _check_structural(f"{path}.items", items, _ITEM, uncorrelatable)


def _check_value_validations(
    path: str, schema: SchemaProps, structural: SchemaProps
) -> Iterator[Cause]:
    """Check value validations: the structural schema must have all fields that they name."""
    plain = bool(structural.get(_INT_OR_STRING)) and schema is structural
    for word in JUNCTORS[:3]:
        for index, inner in enumerate(schema.get(word) or ()):
            if plain and (word == "anyOf" and is_int_or_string(schema)):
                continue
            skips = plain and word == "allOf" and index == 0 and is_int_or_string(inner)
            rest = {key: value for key, value in inner.items() if not (skips and key == "anyOf")}
            yield from _check_value_validation(f"{path}.{word}[{index}]", rest, structural)
    if schema.get("not") is not None:
        yield from _check_value_validation(f"{path}.not", schema["not"], structural)


def _check_value_validation(
    path: str, schema: SchemaProps, structural: SchemaProps
) -> Iterator[Cause]:
    yield from _check_keywords(path, schema)
    for word, why in _NOT_NESTED.items():
        if schema.get(word) not in (None, "", False, [], {}):
            yield forbidden(f"{path}.{word}", why)
    properties = schema.get("properties") or {}
    fields = structural.get("properties") or {}
    for name, inner in properties.items():
        here = f"{path}.properties[{name}]"
        if name == "metadata":
            yield forbidden(here, "must not be specified in a nested context")
        elif name not in fields and not isinstance(structural.get("additionalProperties"), Mapping):
            where = _structural_path(here)
            yield required(where, f"because it is defined in {here}")
        else:
            yield from _check_value_validation(
                here, inner, fields.get(name) or structural["additionalProperties"]
            )
    items = schema.get("items")
    if isinstance(items, Mapping):
        if isinstance(structural.get("items"), Mapping):
            yield from _check_value_validation(f"{path}.items", items, structural["items"])
        else:
            where = _structural_path(f"{path}.items")
            yield required(where, f"because it is defined in {path}.items")
    yield from _check_value_validations(path, schema, structural)


def _structural_path(path: str) -> str:
    """Return the path of a field in the structural schema, from its path in a value validation."""
    kept = [step for step in path.split(".") if step.partition("[")[0] not in JUNCTORS]
    return ".".join(kept)


def _check_defaults(
    path: str, schema: SchemaProps, rules: cel_rules.Rules | None, budget: cel_rules.Budget
) -> Iterator[Cause]:
    """Check that defaults are valid by their schemas and rules, and have no unknown fields.

    Each rule is compiled once for all defaults, and all share the budget of one document, since
    defaults can be nested.
    """
    parts: list[tuple[str, SchemaProps, cel_rules.Rules | None]] = [
        (f"{path}.properties[{name}]", inner, rules and rules.for_field(name))
        for name, inner in (schema.get("properties") or {}).items()
    ]
    parts += [
        (f"{path}.{word}", schema[word], rules and rules.for_keyword(word))
        for word in ("items", "additionalProperties")
        if is_schema(schema.get(word))
    ]
    for here, inner, inner_rules in parts:
        if inner.get("default") is not None:
            yield from _check_default(f"{here}.default", inner, inner_rules, budget)
        yield from _check_defaults(here, inner, inner_rules, budget)


def _check_default(
    path: str, schema: SchemaProps, rules: cel_rules.Rules | None, budget: cel_rules.Budget
) -> Iterator[Cause]:
    holder = {"default": copied(schema["default"])}
    fits = Schema({"type": "object", "properties": {"default": schema}}, foreign=True)
    if unknown := fits.prune(holder):
        fields = [each.removeprefix("default.") for each in unknown]
        why = "must not have unknown fields " + ", ".join(fields)
        yield invalid(path, schema["default"], why)
        return
    causes = fits.check(holder)
    if not causes and rules is not None:
        causes = rules.check_default(holder["default"], budget)
    for cause in causes:
        if cause.field != "<nil>":
            where = path.removesuffix("default") + cause.field
            yield Cause(where, cause.message, cause.reason)
