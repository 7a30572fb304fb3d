"""The door to the library that reads, checks and runs CEL (Google's, in C++).

It bounds what expressions may do: they nest 32 deep, their loops have 10 000 rounds together, and
regular expressions are RE2's, which take time by the length of the text.  ``cost`` bounds what one
round may do.  The library is loaded only once somebody has an expression: it takes 16 MiB.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from corral.api.cel import authorizer, cost, dynamic_types, optional, syntax_tree, transform_map
from corral.api.cel.functions import FUNCTIONS
from corral.api.cel.patterns import Extract, finders
from corral.api.cel.text_literals import SHAPES, converted

if TYPE_CHECKING:
    from cel_expr_python import cel

LONGEST_EXPRESSION: Final = 16 << 10
_ANYTHING: Final = cost.Size(3 << 20, cost.MOST_ROUNDS, cost.MOST_ROUNDS, 64 << 20)
"""As much as a request may bring."""
_LITTLE: Final = 1 << 16
_MANY_LOOKS: Final = 1000
"""From here on to reckon takes milliseconds, and is done for sizes that are rounded up."""
_BUDGET = "operation cancelled: actual cost limit exceeded"
_TOO_NESTED = (
    "too many loops in loops to tell what they cost: nest fewer, or say less in the innermost"
)
_EXTENSIONS: Final = """
extensions:
- {name: bindings}
- {name: encoders}
- {name: math}
- {name: optional}
- {name: strings}
- {name: two-var-comprehensions}
"""
"""Parts of the library, as it names them."""
_FIRST: Final = "regex.extract(text, pattern).orValue('')"
_EVERY: Final = "regex.extractAll(text, pattern)"
_NO_OPTIONAL = "an optional value cannot be kept or given to a function: use orValue()"
_CODE = re.compile(r"^[A-Z_]+: ")
_CODE_AGAIN = re.compile(r" \[[A-Z_]+\]$")
_ABSENT = re.compile(r'^Key not found in map : "?(?P<key>.*?)"?$')
_MISFITS: Final = (
    "No matching overloads found",
    "Unexpected value type for 'Python function",
    "Non-CEL value type for 'Python function",
)
_TOLD: Final[Mapping[str, str]] = {
    "divide by zero": "division by zero",
    "modulus by zero": "modulus by zero",
    "Iteration budget exceeded": _BUDGET,
}
"""What the library says, and what Kubernetes does."""


class CelError(Exception):
    """An expression cannot be read, or has no value for what it was given; the text says why."""


class Environment:
    """Expressions with the same variables."""

    def __init__(self, variables: Sequence[tuple[str, str]]) -> None:
        from cel_expr_python import cel  # noqa: PLC0415  16 MiB that most servers never need

        self.variables = tuple(variables)
        types = _types(cel)
        self._env = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
            variables={name: types[told] for name, told in variables},
            extensions=[_kubernetes(cel, types)],
        )
        self.error = cel.Type.ERROR

    def compile(self, text: str) -> "Program":
        """Raises CelError."""
        if len(text) > LONGEST_EXPRESSION:
            raise CelError(f"an expression has at most {LONGEST_EXPRESSION} characters")
        try:
            expression = self._env.compile(text)
            serialized = expression.serialize()
            if transform_map.is_needed(serialized):
                serialized = transform_map.renamed(serialized)
                expression = self._env.deserialize(serialized)
            program = Program(text, expression, serialized, self)
        except (RuntimeError, UnicodeError) as error:
            raise CelError(_told(str(error))) from None
        if program.looks > cost.MOST_LOOKS:
            raise CelError(_TOO_NESTED)
        return program

    def typed(self, text: str) -> tuple[str, str]:
        """The type of an expression's value, and what the library has against it, if anything."""
        try:
            return _type_name(self._env.compile(text)), ""
        except (RuntimeError, UnicodeError) as error:
            return "dyn", str(error)

    @cached_property
    def typing(self) -> "Environment":
        """The same, in which variables stand in for parts of expressions."""
        return environment((*self.variables, *dynamic_types.variables().items()))

    def read(self, text: str, serialized: bytes) -> "Program":
        """The program of a checked expression."""
        return Program(text, self._env.deserialize(serialized), serialized, self)


class Program:
    """An expression that can be run.

    returns: the type of its value, as CEL names it; ``dyn`` where only a run tells.
    """

    def __init__(
        self, text: str, expression: "cel.Expression", serialized: bytes, env: Environment
    ) -> None:
        self.text = text
        self.returns = _type_name(expression)
        self._expression = expression
        self._env = env
        self.tree = syntax_tree.read(serialized)
        self._serialized = serialized
        self.optionals = syntax_tree.optionals(serialized)
        """The numbers of all parts that are optional values, or hold some."""
        if (misplaced := optional.misplaced(self.tree, self.optionals)) is not None:
            raise self.fault(misplaced, _NO_OPTIONAL)
        self._require_known_fields(authorizer.VARIABLE, (authorizer.FIELD,))
        self._reckoned: dict[cost.Size, int] = {}
        """Its work by sizes, which are powers of two: so there are few."""

    def run(self, bindings: Mapping[str, Any]) -> Any:
        """Its value, in Python's types; all variables have to be given.  Raises CelError.

        Given as ``authorizer`` is who answers the questions about rights.
        """
        asked = bindings.get(authorizer.VARIABLE)
        if isinstance(asked, authorizer.Authorizer):
            with asked.answering():
                return self._run({**bindings, authorizer.VARIABLE: asked.value()})
        return self._run(bindings)

    def converted(self, calls: Mapping[int, str]) -> "Program":
        """The same, where some parts, by their numbers, are what functions make of them."""
        kept = {at: name for at, name in calls.items() if at not in self.optionals}
        return self._env.read(self.text, converted(self._serialized, kept)) if kept else self

    def fault(self, node: syntax_tree.Node, why: str) -> CelError:
        """What is wrong with a part of it, told as the library tells such."""
        return CelError(self._told_at(*syntax_tree.place(self._serialized, self.text, node), why))

    def _told_at(self, line: int, column: int, why: str) -> str:
        shown = self.text.split("\n")[line - 1]
        return f"ERROR: <input>:{line}:{column}: {why}\n | {shown}\n | {'.' * (column - 1)}^"

    def require_fit(self, types: Mapping[int, str]) -> str:
        """The type of its value, by the types of some parts, which have their numbers.

        Raises CelError where they do not go together.
        """
        known = {at: told for at, told in types.items() if at not in self.optionals}
        text = dynamic_types.replaced(
            self.text, self.tree, known, syntax_tree.offsets(self._serialized)
        )
        if text == self.text:
            return self.returns
        returns, complaint = self._env.typing.typed(text)
        if faults := dynamic_types.faults(complaint):
            raise CelError("\n".join(self._told_at(*fault) for fault in faults))
        return returns

    def _require_known_fields(self, variable: str, known: Sequence[str]) -> None:
        """Refuse what selects another field of a variable.  Raises CelError."""
        for node in syntax_tree.walk(self.tree):
            if node.kind != "field" or node.text in known:
                continue
            if (node.parts[0].kind, node.parts[0].text) == ("name", variable):
                raise self.fault(node, f"undefined field '{node.text}'")

    def _run(self, bindings: Mapping[str, Any]) -> Any:
        if self._most > cost.MOST_WORK:  # of most it is not: they have no loops
            self._require_end(bindings)
        try:
            value = self._expression.eval(data=bindings)
            if value.type() != self._env.error:
                return value.plain_value()
            told = str(value.plain_value())
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelError(_told(str(error))) from None
        raise CelError(_told(told))

    @cached_property
    def looks(self) -> int:
        """How many of its parts are looked at to reckon its work."""
        return cost.looks(self.tree)

    @cached_property
    def _most(self) -> int:
        """Its work with whatever it may be given, in about nanoseconds."""
        return cost.work(self.tree, _ANYTHING)

    def work(self, size: cost.Size) -> int:
        """The most that it may be to do with values of such a size, in about nanoseconds."""
        if self._most <= _LITTLE:
            return self._most
        rounded = cost.Size(*(1 << each.bit_length() for each in size))
        known = self._reckoned.get(rounded)
        if known is None:
            known = self._reckoned[rounded] = cost.work(self.tree, rounded)
        if known <= _LITTLE or self.looks > _MANY_LOOKS:
            return known
        return cost.work(self.tree, size)

    def _require_end(self, bindings: Mapping[str, Any]) -> None:
        """Refuse what could keep the server busy for long."""
        if self.work(cost.size_of(dict(bindings))) > cost.MOST_WORK:
            raise CelError(_BUDGET)

    def __repr__(self) -> str:
        return f"Program({self.text!r})"


def _type_name(expression: "cel.Expression") -> str:
    name: str = expression.return_type().name().lower()
    return name


@lru_cache(maxsize=64)
def environment(variables: tuple[tuple[str, str], ...]) -> Environment:
    """The environment of some variables and their types, made once."""
    return Environment(variables)


def _types(cel: Any) -> dict[str, Any]:
    """The library's types by the names that this module's users have for them."""
    of = cel.Type
    simple = {
        name: getattr(of, name.upper()) for name in (*dynamic_types.SIMPLE, "double", "dyn", "uint")
    }
    held_in = {}
    for shape, kind in product(SHAPES, dynamic_types.SIMPLE):
        held = simple[kind]
        for collection in reversed(shape.split("_")):
            held = of.List(held) if collection == "list" else of.Map(of.STRING, held)
        held_in[f"{shape}_{kind}"] = held
    return {
        **simple,
        **held_in,
        "list": of.List(of.DYN),
        "map": of.Map(of.STRING, of.DYN),
        "strings": of.List(of.STRING),
        "entries": of.Map(of.DYN, of.DYN),
    }


def _kubernetes(cel: Any, types: Mapping[str, Any]) -> Any:
    """The functions that Kubernetes adds to the language."""
    overloads: dict[str, list[Any]] = {}
    for function in (*FUNCTIONS, *finders(_extract(cel, _FIRST), _extract(cel, _EVERY))):
        known = overloads.setdefault(function.name, [])
        overload = cel.Overload(
            function.form or f"corral_{function.name.replace('.', '_')}_{len(known)}",
            types[function.returns],
            [types[each] for each in function.takes],
            function.is_method,
            function.act,
        )
        known.append(overload)
    declared = [cel.FunctionDecl(name, each) for name, each in overloads.items()]
    return cel.CelExtension("kubernetes", declared)


def _extract(cel: Any, text: str) -> Extract:
    """One of the library's functions that find what fits a pattern."""
    config = cel.NewEnvConfigFromYaml("extensions: [{name: optional}, {name: regex}]")
    known = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    expression = cel.NewEnv(config=config, variables=known).compile(text)

    def extract(text: str, pattern: str) -> Any:
        found = expression.eval(data={"text": text, "pattern": pattern})
        if found.type() == cel.Type.ERROR:
            raise ValueError(_told(str(found.plain_value())))
        return found.plain_value()

    return extract


def _told(message: str) -> str:
    """An error in Kubernetes' words, without the library's codes."""
    text = _CODE_AGAIN.sub("", _CODE.sub("", message))
    if absent := _ABSENT.match(text):
        return f"no such key: {absent['key']}"
    if text.startswith(_MISFITS):
        return "no such overload"
    return _TOLD.get(text, text)
