"""Which fields a rule selects, and whether the schema that it stands in has them.

The library takes a document for something of any type: so a field that there is not would only be
found when a document comes.  What the schema tells of types is followed through the expression
instead: fields, items, values, loops, and the names that these bind.  Of what other functions make
nothing is known.

So is what texts stand for: wherever a text in the format of a time is looked at, or a list or a map
of such as a whole, it is read, so that times are never compared with texts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from corral.api.cel.syntax_tree import UNUSED, Node
from corral.api.cel.text_literals import FORMAT_TYPES, parser_of, variant_of
from corral.api.kinds.crd.embedded_resources import EMBEDDED

Told = Mapping[str, Any]

_ANY: Final[Told] = {}
_NO_ITEMS: Final[Told] = {"type": "array"}
_NOTHING: Final[Told] = {"enum": ()}
"""Of an optional value that there is not: it may be one of anything."""
_TEXT: Final[Told] = {"type": "string"}
_WHOLE: Final[Mapping[str, Told]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
"""What rules can ask of every whole object, whatever its schema says of it."""
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_FORMS: Final = frozenset(FORMAT_TYPES.values())
_NAMES: Final = {"array": "list", "boolean": "bool", "integer": "int", "number": "double"}
_SAME: Final = frozenset({"value", "orValue", "or", "optional.of", "optional.ofNonZeroValue"})
"""Functions whose value is of the type of what they are first given."""
_LISTS: Final = frozenset({"slice", "sort", "distinct", "reverse"})
"""Functions that give some of a list's items."""
_OF_LIST: Final = _LISTS | {"min", "max", "sum"}
"""Those, and functions that give one of them, or what is like one."""
_SELECTING: Final = frozenset({"_[_]", "_[?_]", "_?._", "size"})
"""Functions that look only at a part of what they are given, which is read then."""
_READ: Final[Mapping[str, Told]] = {
    "timestamp": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "duration"},
}
"""Functions of the language whose value is what a text of a format is read as."""
_VALUES: Final = frozenset({"_[_]", "value", "orValue"})
"""Functions that give what a document holds."""


class UnknownFieldError(Exception):
    """A rule selects what is not there, at a part of it."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why


class Selections(NamedTuple):
    """What is known of an expression's parts, by their numbers.

    read: the function that makes times and the like of texts.
    types: the types of variables and fields, in words of ``corral.api.cel``.
    ranges: the schemas of what loops go over.
    """

    read: Mapping[int, str]
    types: Mapping[int, str]
    ranges: Mapping[int, Told]


def read_fields(root: Node, known: Mapping[str, Told], escaped: Callable[[str], str]) -> Selections:
    """What schemas tell of an expression's parts.

    ``known`` are the schemas of variables, ``escaped`` makes a field's name one in expressions.
    Raises UnknownFieldError for a field that a schema has not.
    """
    reader = _Reader(escaped)
    reader.read(root, known)
    return Selections({**reader.whole, **reader.instead}, reader.types, reader.ranges)


class _Reader:
    """Reads the types of an expression's parts, as schemas."""

    def __init__(self, escaped: Callable[[str], str]) -> None:
        self._escaped = escaped
        self.whole: dict[int, str] = {}
        """What reads the parts that are texts, or collections of them."""
        self.instead: dict[int, str] = {}
        """What is called instead of functions that give a list's items, as these are read."""
        self.types: dict[int, str] = {}
        self.ranges: dict[int, Told] = {}

    def read(self, node: Node, known: Mapping[str, Told]) -> Told:
        """The schema of a part's value; empty where nothing is known."""
        schema = self._schema(node, known)
        if node.kind in ("name", "field") and not schema.get("nullable"):
            self.types[node.number] = _type_of(schema)
        is_value = node.kind in ("name", "field") or node.text in _VALUES or node.optional_parts
        if is_value and not node.is_presence_test and (reader := parser_of(_form_of(schema))):
            self.whole[node.number] = reader
        return schema

    def _read_below(self, node: Node, known: Mapping[str, Told]) -> Told:
        """The schema of a part; one that is a collection stays as it is."""
        schema = self.read(node, known)
        if schema.get("type") in ("array", "object"):
            self.whole.pop(node.number, None)
        return schema

    def _schema(self, node: Node, known: Mapping[str, Told]) -> Told:
        if node.kind == "name":
            return known.get(node.text, _ANY)
        if node.kind == "loop":
            return self._loop(node, known)
        if node.kind == "const":
            return _ANY
        is_selecting = node.kind == "field" or node.text in _SELECTING
        first, rest = node.parts[:1], node.parts[1:]
        parts = [(self._read_below if is_selecting else self.read)(part, known) for part in first]
        parts += [self.read(part, known) for part in rest]
        return self._made(node, parts)

    def _made(self, node: Node, parts: list[Told]) -> Told:
        """Of what is made of other parts: the schema."""
        if node.kind == "field":
            return self._field(node, parts[0], node.text)
        if node.kind == "list":
            return {"type": "array", "items": _all_alike(parts)} if parts else _NO_ITEMS
        if node.kind == "map":
            return {"type": "object", "additionalProperties": _all_alike(parts[1::2]) or True}
        if not parts:
            return _NOTHING if node.text == "optional.none" else _ANY
        return self._call(node, parts)

    def _call(self, node: Node, parts: list[Told]) -> Told:
        if node.text == "_?._":
            return self._field(node, parts[0], node.parts[1].text)
        if node.text in ("_[_]", "_[?_]"):
            return _inner(parts[0])
        if node.text == "_?_:_":
            return _common(parts[1], parts[2])
        if node.text == "_+_":
            return _common(*parts)
        return self._given(node, parts[0])

    def _given(self, node: Node, first: Told) -> Told:
        """Of what a function makes of what it is first given."""
        if node.text not in _OF_LIST:
            is_same = node.text in _SAME or (node.text == "dyn" and _form_of(first))
            return first if is_same else _READ.get(node.text, _ANY)
        made = first if node.text in _LISTS else _inner(first)
        if variant := variant_of(node.text, _form_of(made)):
            self.whole.pop(node.parts[0].number, None)  # it reads what it is given
            self.instead[node.number] = variant
        return made

    def _field(self, node: Node, schema: Told, name: str) -> Told:
        kind = schema.get("type")
        if kind is None or schema.get(_INT_OR_STRING):
            return _ANY
        if kind != "object":
            told = _NAMES.get(kind, kind)
            raise UnknownFieldError(node, f"type '{told}' does not support field selection")
        if isinstance(rest := schema.get("additionalProperties"), Mapping):
            return rest
        if rest is True:
            return _ANY
        fields: dict[str, Told] = {}
        for told, inner in (schema.get("properties") or {}).items():
            if inner.get("type") or inner.get(_INT_OR_STRING):  # of others nothing can be asked
                fields[self._escaped(told)] = inner
        fields |= _WHOLE if schema.get(EMBEDDED) else {}
        if name not in fields:
            raise UnknownFieldError(node, f"undefined field '{name}'")
        return fields[name]

    def _loop(self, node: Node, known: Mapping[str, Told]) -> Told:
        over, start, condition, step, result = node.parts
        item, gathered, second = node.names
        ranged, begun = self._read_below(over, known), self.read(start, known)
        self.ranges[node.number] = ranged
        if item == UNUSED:  # the library leaves out what rounds would do
            return self.read(result, {**known, gathered: begun})
        within = dict(known)
        if second:
            within |= {item: _ANY, second: _inner(ranged)}
        else:
            within[item] = _inner(ranged) if ranged.get("type") == "array" else _ANY
        within[gathered] = begun
        self.read(condition, within)
        made = self.read(step, within)
        return self.read(result, {**known, gathered: _common(begun, made)})


def _inner(schema: Told) -> Told:
    """What is in a list, or is a value of a map."""
    found = schema.get("items" if schema.get("type") == "array" else "additionalProperties")
    return found if isinstance(found, Mapping) else _ANY


def _type_of(schema: Told) -> str:
    """The type of a value, or of what is in a collection; empty for objects, and what may vary."""
    kind = schema.get("type")
    if kind == "string":
        return FORMAT_TYPES.get(schema.get("format", ""), "string")
    if kind in ("boolean", "integer"):
        return _NAMES[kind]
    if kind not in ("array", "object"):
        return ""
    inner = _inner(schema)
    told = "" if inner.get("nullable") else _type_of(inner)
    return f"{'list' if kind == 'array' else 'map'}_{told}" if told else ""


def _form_of(schema: Told) -> str:
    """What a text is read as, or a collection of texts; empty where it is no time and the like."""
    told = _type_of(schema)
    return told if told.rpartition("_")[2] in _FORMS else ""


def _are_alike(one: Told, other: Told) -> bool:
    """Whether two schemas tell the same of what is within."""
    if one is other:
        return True
    form = _form_of(one)
    return bool(form) and form == _form_of(other)


def _all_alike(parts: Sequence[Told]) -> Told:
    """The schema of each of some; empty where they differ, or there are none."""
    alike = parts and all(_are_alike(part, parts[0]) for part in parts)
    return parts[0] if alike else _ANY


def _common(one: Told, other: Told) -> Told:
    """What is known of something that may be either."""
    if one is _NO_ITEMS or one is _NOTHING or _are_alike(one, other):
        return other
    if other is _NO_ITEMS or other is _NOTHING:
        return one
    both = one.get("type") == other.get("type") == "array"
    return one if both and _are_alike(_inner(one), _inner(other)) else _ANY
