"""Whether a definition's schema is structural, and what else apiextensions asks of it.

A structural schema says the type of every field outside of ``allOf``, ``anyOf``, ``oneOf`` and
``not``, which only ask more of values: so what is kept of a document, and what its defaults are,
does not depend on what is in it.
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

Told = Mapping[str, Any]

DEEPEST: Final = 120
"""Objects and lists inside of each other: what is deeper could not be walked."""
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
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
    _OPEN: "must be false to be structural",
    EMBEDDED: "must be false to be structural",
    _INT_OR_STRING: "must be false to be structural",
    _LIST_KEYS: "must be empty to be structural",
    _LIST_TYPE: "must be undefined to be structural",
    _MAP_TYPE: "must be undefined to be structural",
    cel_rules.RULES: "must be empty to be structural",
}
"""What may not be said inside of alternatives."""
_OF_ROOT, _OF_ITEM, _OF_FIELD = "the root", "specified array items", "specified object fields"


def check(path: str, schema: Told) -> Iterator[Cause]:
    """What is wrong with the schema of a whole object."""
    if _depth(schema) > DEEPEST:
        yield forbidden(path, f"must not be deeper than {DEEPEST} levels")
        return
    faults = [*_spine(path, schema, _OF_ROOT)]
    yield from faults
    if not faults:
        yield from _defaults(path, schema, cel_rules.Rules(schema) or None, cel_rules.Budget())


def field_at(schema: Told, names: Sequence[str]) -> Told | None:
    """The schema of a field of an object; None where there is no such field."""
    for name in names:
        found = (schema.get("properties") or {}).get(name)
        if not isinstance(found, Mapping):
            return None
        schema = found
    return schema


def is_schema(value: object) -> bool:
    """Whether a word says more of something than yes or no."""
    return isinstance(value, Mapping)


def _depth(schema: Any) -> int:
    """How deep objects and lists lie in each other; of what is too deep, that it is."""
    deepest, waiting = 0, [(schema, 0)]
    while waiting:
        value, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(value, Mapping):
            waiting += ((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            waiting += ((inner, depth + 1) for inner in value)
        if deepest > DEEPEST:
            break
    return deepest


def _spine(path: str, schema: Told, level: str, apart: str = "") -> Iterator[Cause]:
    """What is wrong outside of alternatives.

    ``apart`` is the path of a list that it is in, if nobody knows which of its items was which.
    """
    yield from _words(path, schema)
    yield from _type(path, schema, level)
    yield from _structure(path, schema)
    if level == _OF_ROOT or schema.get(EMBEDDED):
        yield from _metadata(path, schema, is_root=level == _OF_ROOT)
    yield from _parts(path, schema, level, apart)
    yield from _alternatives(path, schema, schema)
    known = {**schema, EMBEDDED: True} if level == _OF_ROOT else schema
    yield from cel_rule_checks.faults(f"{path}.{cel_rules.RULES}", known, apart)


def _words(path: str, schema: Told) -> Iterator[Cause]:
    """Words that OpenAPI has and Kubernetes does not, and those that bound values."""
    for word, why in _UNSUPPORTED.items():
        if word in schema:
            yield forbidden(f"{path}.{word}", why)
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    if "pattern" in schema and (fault := pattern_fault(schema["pattern"])):
        told = f"must be a valid regular expression, but isn't: {fault}"
        yield invalid(f"{path}.pattern", schema["pattern"], told)


def _type(path: str, schema: Told, level: str) -> Iterator[Cause]:
    told = schema.get("type", "")
    if told == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        yield forbidden(f"{path}.type", why)
    elif told and told not in _TYPES:
        yield unsupported(f"{path}.type", told, _TYPES)
    if schema.get(EMBEDDED) and told != "object":
        why = f"must be object if {EMBEDDED} is true"
        yield invalid(f"{path}.type", told, why) if told else required(f"{path}.type", why)
    elif not told and not schema.get(_INT_OR_STRING) and not schema.get(_OPEN):
        at_root = level == _OF_ROOT
        yield required(f"{path}.type", f"must not be empty {'at' if at_root else 'for'} {level}")
    elif level == _OF_ROOT and told != "object" and told:
        yield invalid(f"{path}.type", told, "must be object at the root")


def _structure(path: str, schema: Told) -> Iterator[Cause]:
    """Words of Kubernetes' own that do not go together."""
    if schema.get(_INT_OR_STRING):
        for word in (_OPEN, EMBEDDED):
            if schema.get(word):
                fault = f"must be false if {_INT_OR_STRING} is true"
                yield invalid(f"{path}.{word}", schema[word], fault)
        if schema.get("type"):
            why = f"must be empty if {_INT_OR_STRING} is true"
            yield invalid(f"{path}.type", schema["type"], why)
    yield from _embedded(path, schema)
    if schema.get(_OPEN) is False:
        why = "must be true or undefined"
        yield invalid(f"{path}.{_OPEN}", value=False, fault=why)
    yield from _list_type(path, schema)
    if (kind := schema.get(_MAP_TYPE)) is not None:
        if schema.get("type") != "object":
            fault = f"must be object if {_MAP_TYPE} is specified"
            yield invalid(f"{path}.type", schema.get("type", ""), fault)
        if kind not in ("atomic", "granular"):
            yield unsupported(f"{path}.{_MAP_TYPE}", kind, ("atomic", "granular"))


def _embedded(path: str, schema: Told) -> Iterator[Cause]:
    if schema.get(EMBEDDED):
        if "additionalProperties" in schema:
            why = f"must not be used if {EMBEDDED} is set"
            yield forbidden(f"{path}.additionalProperties", why)
        if not schema.get(_OPEN) and not schema.get("properties"):
            why = f"must not be empty if {EMBEDDED} is true without {_OPEN}"
            yield required(f"{path}.properties", why)


def _list_type(path: str, schema: Told) -> Iterator[Cause]:
    kind, keys = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or ()
    if kind is not None:
        if schema.get("type") != "array":
            fault = f"must be array if {_LIST_TYPE} is specified"
            yield invalid(f"{path}.type", schema.get("type", ""), fault)
        if kind not in ("atomic", "set", "map"):
            yield unsupported(f"{path}.{_LIST_TYPE}", kind, ("atomic", "set", "map"))
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _known_items(f"{path}.items", items, kind)
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
    yield from _list_keys(path, items, keys)


def _known_items(path: str, items: Told, kind: str | None) -> Iterator[Cause]:
    """Items are known by something; those of a set are compared, and changed, as a whole."""
    if kind in ("set", "map") and items.get("nullable"):
        yield forbidden(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is {kind}")
    if kind != "set":
        return
    fault = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(_LIST_TYPE, "atomic") != "atomic":
        yield invalid(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], fault)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield invalid(f"{path}.{_MAP_TYPE}", items.get(_MAP_TYPE), fault)


def _list_keys(path: str, items: Told, keys: Sequence[str]) -> Iterator[Cause]:
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


def _metadata(path: str, schema: Told, *, is_root: bool) -> Iterator[Cause]:
    """What every object has is said by nobody but Kubernetes; its name alone can be bounded."""
    properties = schema.get("properties") or {}
    for field in ("kind", "apiVersion"):
        told = (properties.get(field) or {"type": "string"}).get("type", "")
        if told != "string":
            yield invalid(f"{path}.properties[{field}].type", told, "must be string")
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


def _parts(path: str, schema: Told, level: str, apart: str) -> Iterator[Cause]:
    """Fields, items and values."""
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    if rest is not None:
        if level == _OF_ROOT:
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if properties and (rest is False or isinstance(rest, Mapping)):
            why = "additionalProperties and properties are mutual exclusive"
            yield forbidden(f"{path}.additionalProperties", why)
        if isinstance(rest, Mapping):
            yield from _spine(f"{path}.additionalProperties", rest, _OF_FIELD, apart)
        elif not isinstance(rest, bool):
            yield invalid(f"{path}.additionalProperties", rest, "must be a schema or a boolean")
    is_bound = level == _OF_ROOT or schema.get(EMBEDDED)
    for name, inner in properties.items():
        if not (is_bound and name == "metadata"):
            yield from _spine(f"{path}.properties[{name}]", inner, _OF_FIELD, apart)
    yield from _items(path, schema, apart)


def _items(path: str, schema: Told, apart: str) -> Iterator[Cause]:
    items = schema.get("items")
    if items is None:
        if schema.get("type") == "array":
            yield required(f"{path}.items", "must be specified")
    elif not isinstance(items, Mapping):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    else:
        apart = apart or ("" if schema.get(_LIST_TYPE) == "map" else path)
        yield from _spine(f"{path}.items", items, _OF_ITEM, apart)


def _alternatives(path: str, schema: Told, spine: Told) -> Iterator[Cause]:
    """What is wrong inside of alternatives: all that they name, the spine has to name, too."""
    plain = bool(spine.get(_INT_OR_STRING)) and schema is spine
    for word in JUNCTORS[:3]:
        for index, inner in enumerate(schema.get(word) or ()):
            if plain and (word == "anyOf" and is_int_or_string(schema)):
                continue
            skips = plain and word == "allOf" and index == 0 and is_int_or_string(inner)
            rest = {key: told for key, told in inner.items() if not (skips and key == "anyOf")}
            yield from _nested(f"{path}.{word}[{index}]", rest, spine)
    if schema.get("not") is not None:
        yield from _nested(f"{path}.not", schema["not"], spine)


def _nested(path: str, schema: Told, spine: Told) -> Iterator[Cause]:
    yield from _words(path, schema)
    for word, why in _NOT_NESTED.items():
        if schema.get(word) not in (None, "", False, [], {}):
            yield forbidden(f"{path}.{word}", why)
    properties = schema.get("properties") or {}
    known = spine.get("properties") or {}
    for name, inner in properties.items():
        here = f"{path}.properties[{name}]"
        if name == "metadata":
            yield forbidden(here, "must not be specified in a nested context")
        elif name not in known and not isinstance(spine.get("additionalProperties"), Mapping):
            where = _out_of_alternatives(here)
            yield required(where, f"because it is defined in {here}")
        else:
            yield from _nested(here, inner, known.get(name) or spine["additionalProperties"])
    items = schema.get("items")
    if isinstance(items, Mapping):
        if isinstance(spine.get("items"), Mapping):
            yield from _nested(f"{path}.items", items, spine["items"])
        else:
            where = _out_of_alternatives(f"{path}.items")
            yield required(where, f"because it is defined in {path}.items")
    yield from _alternatives(path, schema, spine)


def _out_of_alternatives(path: str) -> str:
    """The path of a field in the spine, from one in alternatives."""
    kept = [step for step in path.split(".") if step.partition("[")[0] not in JUNCTORS]
    return ".".join(kept)


def _defaults(
    path: str, schema: Told, rules: cel_rules.Rules | None, budget: cel_rules.Budget
) -> Iterator[Cause]:
    """Defaults fit the schemas and rules that they are in, and hold nothing to be pruned.

    Each rule is read once for all of them, and they share what asking may cost: they may lie in
    each other, and are no more than one document's worth of work to the server.
    """
    parts: list[tuple[str, Told, cel_rules.Rules | None]] = [
        (f"{path}.properties[{name}]", inner, rules and rules.of_field(name))
        for name, inner in (schema.get("properties") or {}).items()
    ]
    parts += [
        (f"{path}.{word}", schema[word], rules and rules.of_word(word))
        for word in ("items", "additionalProperties")
        if is_schema(schema.get(word))
    ]
    for here, inner, asked in parts:
        if inner.get("default") is not None:
            yield from _default(f"{here}.default", inner, asked, budget)
        yield from _defaults(here, inner, asked, budget)


def _default(
    path: str, schema: Told, rules: cel_rules.Rules | None, budget: cel_rules.Budget
) -> Iterator[Cause]:
    holder = {"default": copied(schema["default"])}
    fits = Schema({"type": "object", "properties": {"default": schema}}, foreign=True)
    if unknown := fits.prune(holder):
        fields = [each.removeprefix("default.") for each in unknown]
        told = "must not have unknown fields " + ", ".join(fields)
        yield invalid(path, schema["default"], told)
        return
    found = fits.check(holder)
    if not found and rules is not None:
        found = rules.check_default(holder["default"], budget)
    for cause in found:
        if cause.field != "<nil>":
            where = path.removesuffix("default") + cause.field
            yield Cause(where, cause.message, cause.reason)
