"""Nodes of a compiled schema, which prune and check the values of a document.

The fast path is a plain value of the right type, which is most of most documents.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from corral.api.errors import LONGEST_MESSAGE, MAX_CAUSES, Cause, shortened
from corral.api.schema.bounds import Bound, run
from corral.api.schema.canonical import Form
from corral.api.schema.causes import wrong_type

TYPES: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "integer,string": frozenset({int, str}),
    "object": frozenset({dict}),
    "array": frozenset({list}),
}


_NONE: Final[frozenset[type]] = frozenset()
_ALL: Final = frozenset({bool, int, float, str, list, dict})


class Node(ABC):
    """The schema of one path of a document.  Paths are written ``spec.volumes[0].name``.

    plain: types whose values always fit.
    """

    __slots__ = ("plain",)

    def __init__(self, plain: frozenset[type] = _NONE) -> None:
        self.plain = plain

    def fits(self, value: Any) -> bool:
        """Report whether ``prune`` would not change a value, and ``check`` would find no cause.

        May return False for a value that fits.
        """
        return type(value) in self.plain

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:  # noqa: B027
        """Remove unknown fields from a value, and add their paths; most nodes keep everything."""

    @abstractmethod
    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        """Add the causes for which a pruned value is invalid."""


def _fit(node: Node, values: Iterable[Any]) -> bool:
    """Report whether all values fit; null never does."""
    plain, fits = node.plain, node.fits
    for value in values:
        if type(value) not in plain and (value is None or not fits(value)):
            return False
    return True


def _pass(tests: tuple[Bound, ...], value: Any) -> bool:
    for test in tests:  # noqa: SIM110 (half the time of any())
        if test(value, "") is not None:
            return False
    return True


class Anything(Node):
    """A value whose content the schema does not describe, which is kept as it is."""

    __slots__ = ("must_be", "types")

    def __init__(self, *, must_be: str) -> None:
        self.must_be = must_be
        self.types = TYPES.get(must_be)  # None: any type
        super().__init__(self.types or _ALL)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if self.types is not None and type(value) not in self.types:
            causes.append(wrong_type(value, path, self.must_be))


class Scalar(Node):
    """A string, number or boolean, optionally bounded by tests."""

    __slots__ = ("name", "tests", "types")

    def __init__(self, name: str, tests: tuple[Bound, ...]) -> None:
        self.name = name
        self.types = TYPES[name]
        self.tests = tests
        super().__init__(_NONE if tests else self.types)

    def fits(self, value: Any) -> bool:
        return type(value) in self.types and _pass(self.tests, value)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) not in self.types:
            causes.append(wrong_type(value, path, self.name))
            return
        run(self.tests, value, path, causes)


class Object(Node):
    """An object with named fields."""

    __slots__ = ("fields", "forms", "open", "required")

    def __init__(self, required: tuple[str, ...], *, is_open: bool = False) -> None:
        super().__init__()
        self.fields: dict[str, Node] = {}
        self.required = required
        self.open = is_open  # keeps unknown fields
        self.forms: tuple[tuple[str, Form], ...] = ()  # of fields with a canonical form

    def fits(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        fields = self.fields
        for name, inner in value.items():
            node = fields.get(name)
            if node is None:
                if not self.open:
                    return False
            elif type(inner) not in node.plain and (inner is None or not node.fits(inner)):
                return False
        for name in self.required:
            if name not in value:
                return False
        return not self.forms or all(
            value[name] == form(value[name]) for name, form in self.forms if name in value
        )

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        fields, gone = self.fields, []
        for name, inner in value.items():
            node = fields.get(name)
            if node is None:
                if not self.open:
                    gone.append(name)
                    _add_unknown(unknown, path, name)
            elif inner is None and type(node) is not Nullable:
                gone.append(name)
            elif type(node) is not Scalar:
                node.prune(inner, f"{path}.{name}" if path else name, unknown)
        for name in gone:
            del value[name]
        for name, form in self.forms:
            if name in value:
                value[name] = form(value[name])

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not dict:
            causes.append(wrong_type(value, path, "object"))
            return
        for name in self.required:
            if name not in value:
                where = f"{path}.{name}" if path else name
                causes.append(Cause(where, "Required value", "FieldValueRequired"))
        fields = self.fields
        for name, inner in value.items():
            node = fields.get(name)
            # A plain value of the right type, the most frequent case, needs no path.
            if node is not None and type(inner) not in node.plain:
                node.check(inner, f"{path}.{name}" if path else name, causes)


def _add_unknown(unknown: list[str], path: str, name: str) -> None:
    if len(unknown) < MAX_CAUSES:
        unknown.append(shortened(f"{path}.{name}" if path else name, LONGEST_MESSAGE))


class Map(Node):
    """An object with arbitrary keys, and values of one schema.

    empty: replaces a value that is null; None removes it.
    """

    __slots__ = ("empty", "form", "values")

    def __init__(self, values: Node, *, form: Form | None = None, empty: str | None = None) -> None:
        super().__init__()
        self.values = values
        self.form = form
        self.empty = empty

    def fits(self, value: Any) -> bool:
        if type(value) is not dict or not _fit(self.values, value.values()):
            return False
        form = self.form
        return form is None or all(inner == form(inner) for inner in value.values())

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        if type(self.values) is not Nullable:
            for name in [name for name, inner in value.items() if inner is None]:
                value[name] = self.empty
                if self.empty is None:
                    del value[name]
        if self.form is not None:
            value.update({name: self.form(inner) for name, inner in value.items()})
        elif type(self.values) is not Scalar:
            for name, inner in value.items():
                self.values.prune(inner, f"{path}.{name}", unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not dict:
            causes.append(wrong_type(value, path, "object"))
            return
        for name, inner in value.items():
            self.values.check(inner, f"{path}.{name}", causes)


class List(Node):
    """A list with items of one schema."""

    __slots__ = ("items", "tests")

    def __init__(self, items: Node, tests: tuple[Bound, ...]) -> None:
        super().__init__()
        self.items = items
        self.tests = tests

    def fits(self, value: Any) -> bool:
        return type(value) is list and _fit(self.items, value) and _pass(self.tests, value)

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is list and type(self.items) is not Scalar:
            for index, inner in enumerate(value):
                self.items.prune(inner, f"{path}[{index}]", unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not list:
            causes.append(wrong_type(value, path, "array"))
            return
        for index, inner in enumerate(value):
            self.items.check(inner, f"{path}[{index}]", causes)
        run(self.tests, value, path, causes)


class IfObject(Node):
    """A value that is checked only if it is an object."""

    __slots__ = ("inner",)

    def __init__(self, inner: Node) -> None:
        super().__init__()
        self.inner = inner

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        self.inner.prune(value, path, unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is dict:
            self.inner.check(value, path, causes)


class Nullable(Node):
    """A value that may be null."""

    __slots__ = ("inner",)

    def __init__(self, inner: Node) -> None:
        super().__init__()
        self.inner = inner

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if value is not None:
            self.inner.prune(value, path, unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if value is not None:
            self.inner.check(value, path, causes)


class Narrowed(Node):
    """A value with further checks after that of its type."""

    __slots__ = ("further", "inner")

    def __init__(self, inner: Node, further: "Further") -> None:
        super().__init__()
        self.inner = inner
        self.further = further

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        self.inner.prune(value, path, unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        self.inner.check(value, path, causes)
        self.further.check(value, path, causes)


class Further(Protocol):
    """Checks values of any type."""

    def check(self, value: Any, path: str, causes: list[Cause]) -> None: ...
