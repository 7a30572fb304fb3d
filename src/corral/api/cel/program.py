"""Programs: compiled CEL expressions, over Google's library cel-cpp.

The library bounds the nesting of expressions (32) and the iterations of all loops (10 000); its
regular expressions are RE2's, linear in the text.  ``cost`` bounds the work of an iteration.  The
library takes 16 MiB, and is imported with the first expression.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from corral.api.cel import authorizer, cost, dynamic_types, syntax_tree, transform_map
from corral.api.cel.functions import FUNCTIONS
from corral.api.cel.patterns import Extract, finders
from corral.api.cel.text_literals import SHAPES, rewritten

if TYPE_CHECKING:
    from cel_expr_python import cel

LONGEST_EXPRESSION: Final = 16 << 10
_LARGEST_INPUT: Final = cost.Size(3 << 20, cost.MAX_ITERATIONS, cost.MAX_ITERATIONS, 64 << 20)
"""The size of the largest request."""
_CHEAP: Final = 1 << 16
_MANY_VISITS: Final = 1000
"""From here on an estimate takes milliseconds, and is only made for sizes rounded up."""
_BUDGET = "operation cancelled: actual cost limit exceeded"
_TOO_NESTED = (
    "too many nested loops to estimate their cost: nest fewer, or make the innermost shorter"
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
"""Extensions of the library, by its names."""
_EXTRACT: Final = "regex.extract(text, pattern).orValue('')"
_EXTRACT_ALL: Final = "regex.extractAll(text, pattern)"
_NO_OPTIONAL = "an optional value cannot be a result, an item or an argument: use orValue()"
_OPTIONAL_CONSUMERS: Final = frozenset(
    {"hasValue", "value", "orValue", "or", "optional.of", "_?._", "_[?_]", "_[_]"}
    | {"_?_:_", "_==_", "_!=_"}
)
_CODE = re.compile(r"^[A-Z_]+: ")
_CODE_AGAIN = re.compile(r" \[[A-Z_]+\]$")
_ABSENT = re.compile(r'^Key not found in map : "?(?P<key>.*?)"?$')
_OVERLOAD_ERRORS: Final = (
    "No matching overloads found",
    "Unexpected value type for 'Python function",
    "Non-CEL value type for 'Python function",
)
_MESSAGES: Final[Mapping[str, str]] = {
    "divide by zero": "division by zero",
    "modulus by zero": "modulus by zero",
    "Iteration budget exceeded": _BUDGET,
}
"""Messages of the library, and Kubernetes' for the same error."""


class CelError(Exception):
    """An expression cannot be compiled, or has no value for its input; the text says why."""


class Environment:
    """Compiles expressions with the same variables."""

    def __init__(self, variables: Sequence[tuple[str, str]]) -> None:
        from cel_expr_python import cel  # noqa: PLC0415  16 MiB that most servers never need

        self.variables = tuple(variables)
        types = _types(cel)
        self._env = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
            variables={name: types[kind] for name, kind in variables},
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
            raise CelError(_kubernetes_message(str(error))) from None
        if program.visits > cost.MAX_VISITS:
            raise CelError(_TOO_NESTED)
        return program

    def typed(self, text: str) -> tuple[str, str]:
        """Return the type of an expression's value, and the library's errors, if any."""
        try:
            return _type_name(self._env.compile(text)), ""
        except (RuntimeError, UnicodeError) as error:
            return "dyn", str(error)

    @cached_property
    def typing(self) -> "Environment":
        """The environment with the additional variables of ``dynamic_types``."""
        return environment((*self.variables, *dynamic_types.variables().items()))

    def read(self, text: str, serialized: bytes) -> "Program":
        """Return the program of a checked expression."""
        return Program(text, self._env.deserialize(serialized), serialized, self)


class Program:
    """A compiled expression.

    returns: the CEL type of its value; ``dyn`` if only known after an evaluation.
    optionals: the numbers of nodes whose value is an optional, or contains one.
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
        if (misplaced := _misplaced_optional(self.tree, self.optionals)) is not None:
            raise self.fault(misplaced, _NO_OPTIONAL)
        self._require_fields(authorizer.VARIABLE, (authorizer.FIELD,))
        self._estimates: dict[cost.Size, int] = {}
        """Costs by sizes, which are powers of two: so there are few."""

    def run(self, bindings: Mapping[str, Any]) -> Any:
        """Evaluate the expression to a Python value.  Raises CelError.

        bindings: values of all variables; ``authorizer`` is an Authorizer.
        """
        bound = bindings.get(authorizer.VARIABLE)
        if isinstance(bound, authorizer.Authorizer):
            with bound.active():
                return self._run({**bindings, authorizer.VARIABLE: bound.value()})
        return self._run(bindings)

    def converted(self, calls: Mapping[int, str]) -> "Program":
        """Return the program with some nodes, by number, passed to functions (text_literals)."""
        kept = {at: name for at, name in calls.items() if at not in self.optionals}
        return self._env.read(self.text, rewritten(self._serialized, kept)) if kept else self

    def fault(self, node: syntax_tree.Node, message: str) -> CelError:
        """Return an error about a node, in the form of the library's errors."""
        return CelError(
            self._error_at(*syntax_tree.position(self._serialized, self.text, node), message)
        )

    def _error_at(self, line: int, column: int, message: str) -> str:
        source = self.text.split("\n")[line - 1]
        return f"ERROR: <input>:{line}:{column}: {message}\n | {source}\n | {'.' * (column - 1)}^"

    def require_fit(self, types: Mapping[int, str]) -> str:
        """Type-check with the types of some nodes, by number; return the type of the value.

        Raises CelError if they do not fit.
        """
        static = {at: name for at, name in types.items() if at not in self.optionals}
        text = dynamic_types.replaced(
            self.text, self.tree, static, syntax_tree.offsets(self._serialized)
        )
        if text == self.text:
            return self.returns
        returns, errors = self._env.typing.typed(text)
        if faults := dynamic_types.faults(errors):
            raise CelError("\n".join(self._error_at(*fault) for fault in faults))
        return returns

    def _require_fields(self, variable: str, fields: Sequence[str]) -> None:
        """Refuse selections of other fields of a variable.  Raises CelError."""
        for node in syntax_tree.walk(self.tree):
            if node.kind != "field" or node.text in fields:
                continue
            if (node.parts[0].kind, node.parts[0].text) == ("name", variable):
                raise self.fault(node, f"undefined field '{node.text}'")

    def _run(self, bindings: Mapping[str, Any]) -> Any:
        if self._max_cost > cost.MAX_COST:  # false for most expressions: they have no loops
            self._require_affordable(bindings)
        try:
            value = self._expression.eval(data=bindings)
            if value.type() != self._env.error:
                return value.plain_value()
            message = str(value.plain_value())
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelError(_kubernetes_message(str(error))) from None
        raise CelError(_kubernetes_message(message))

    @cached_property
    def visits(self) -> int:
        """Number of nodes that an estimate of its cost visits."""
        return cost.visits(self.tree)

    @cached_property
    def _max_cost(self) -> int:
        """Its cost for any input, in about nanoseconds."""
        return cost.estimate(self.tree, _LARGEST_INPUT)

    def estimated_cost(self, size: cost.Size) -> int:
        """Return the maximum cost for an input of a size, in about nanoseconds."""
        if self._max_cost <= _CHEAP:
            return self._max_cost
        rounded = cost.Size(*(1 << each.bit_length() for each in size))
        estimate = self._estimates.get(rounded)
        if estimate is None:
            estimate = self._estimates[rounded] = cost.estimate(self.tree, rounded)
        if estimate <= _CHEAP or self.visits > _MANY_VISITS:
            return estimate
        return cost.estimate(self.tree, size)

    def _require_affordable(self, bindings: Mapping[str, Any]) -> None:
        """Refuse an input for which evaluation could take too long.  Raises CelError."""
        if self.estimated_cost(cost.size_of(dict(bindings))) > cost.MAX_COST:
            raise CelError(_BUDGET)

    def __repr__(self) -> str:
        return f"Program({self.text!r})"


def _misplaced_optional(
    root: syntax_tree.Node, optionals: frozenset[int]
) -> syntax_tree.Node | None:
    """Return a node with an optional value where it must not be, if any.

    The library cannot convert optionals to Python.  So they are allowed where the library itself
    consumes them, and refused in lists and maps, as arguments, and as the result.
    """
    if root.number in optionals:
        return root
    left = [root] if optionals else []
    while left:
        node = left.pop()
        for index, part in enumerate(node.parts):
            if part.number in optionals and not _accepts_optional(node, index):
                return part
        left += node.parts
    return None


def _accepts_optional(node: syntax_tree.Node, index: int) -> bool:
    if node.kind == "loop":
        return index > 0  # the accumulator may be an optional, the range may not contain any
    if node.kind in ("list", "map"):
        return index in node.optional_parts
    return node.kind == "field" or node.text in _OPTIONAL_CONSUMERS


def _type_name(expression: "cel.Expression") -> str:
    name: str = expression.return_type().name().lower()
    return name


@lru_cache(maxsize=64)
def environment(variables: tuple[tuple[str, str], ...]) -> Environment:
    """Return the environment of variables with their types, cached."""
    return Environment(variables)


def _types(cel: Any) -> dict[str, Any]:
    """Return the library's types by the names that ``compile_expression`` takes."""
    of = cel.Type
    simple = {
        name: getattr(of, name.upper()) for name in (*dynamic_types.SIMPLE, "double", "dyn", "uint")
    }
    collections = {}
    for shape, kind in product(SHAPES, dynamic_types.SIMPLE):
        nested = simple[kind]
        for collection in reversed(shape.split("_")):
            nested = of.List(nested) if collection == "list" else of.Map(of.STRING, nested)
        collections[f"{shape}_{kind}"] = nested
    return {
        **simple,
        **collections,
        "list": of.List(of.DYN),
        "map": of.Map(of.STRING, of.DYN),
        "strings": of.List(of.STRING),
        "entries": of.Map(of.DYN, of.DYN),
    }


def _kubernetes(cel: Any, types: Mapping[str, Any]) -> Any:
    """Return the extension with the functions that Kubernetes adds to the language."""
    overloads: dict[str, list[Any]] = {}
    for function in (*FUNCTIONS, *finders(_extract(cel, _EXTRACT), _extract(cel, _EXTRACT_ALL))):
        declared = overloads.setdefault(function.name, [])
        overload = cel.Overload(
            function.overload_id or f"corral_{function.name.replace('.', '_')}_{len(declared)}",
            types[function.returns],
            [types[each] for each in function.parameters],
            function.is_method,
            function.implementation,
        )
        declared.append(overload)
    functions = [cel.FunctionDecl(name, each) for name, each in overloads.items()]
    return cel.CelExtension("kubernetes", functions)


def _extract(cel: Any, text: str) -> Extract:
    """Return one of the library's functions that extract matches of a pattern."""
    config = cel.NewEnvConfigFromYaml("extensions: [{name: optional}, {name: regex}]")
    variables = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    expression = cel.NewEnv(config=config, variables=variables).compile(text)

    def extract(text: str, pattern: str) -> Any:
        found = expression.eval(data={"text": text, "pattern": pattern})
        if found.type() == cel.Type.ERROR:
            raise ValueError(_kubernetes_message(str(found.plain_value())))
        return found.plain_value()

    return extract


def _kubernetes_message(message: str) -> str:
    """Return an error in Kubernetes' words, without the library's codes."""
    text = _CODE_AGAIN.sub("", _CODE.sub("", message))
    if absent := _ABSENT.match(text):
        return f"no such key: {absent['key']}"
    if text.startswith(_OVERLOAD_ERRORS):
        return "no such overload"
    return _MESSAGES.get(text, text)
