"""The door to the library that reads, checks and runs CEL (Google's, in C++).

It bounds what expressions may do: they nest 32 deep, their loops have 10 000 rounds together, and
regular expressions are RE2's, which take time by the length of the text.  ``cost`` bounds what one
round may do.  The library is loaded only once somebody has an expression: it takes 16 MiB.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from corral.api.cel import cost
from corral.api.cel.functions import FUNCTIONS

if TYPE_CHECKING:
    from cel_expr_python import cel

LONGEST_EXPRESSION: Final = 16 << 10
_ANYTHING: Final = cost.Size(3 << 20, cost.MOST_ROUNDS, cost.MOST_ROUNDS)
"""As much as a request may bring."""
_LITTLE: Final = 1 << 16
_BUDGET = "operation cancelled: actual cost limit exceeded"
_CODE = re.compile(r"^[A-Z_]+: ")
_CODE_AGAIN = re.compile(r" \[[A-Z_]+\]$")
_ABSENT = re.compile(r'^Key not found in map : "?(?P<key>.*?)"?$')
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
        from cel_expr_python.ext import (  # noqa: PLC0415
            ext_bindings,
            ext_encoders,
            ext_math,
            ext_optional,
            ext_strings,
        )

        types = _types(cel)
        self._env = cel.NewEnv(
            variables={name: types[told] for name, told in variables},
            extensions=[
                ext_strings.ExtStrings(),
                ext_math.ExtMath(),
                ext_optional.ExtOptional(),
                ext_encoders.ExtEncoders(),
                ext_bindings.ExtBindings(),
                _kubernetes(cel, types),
            ],
        )
        self._error = cel.Type.ERROR

    def compile(self, text: str) -> "Program":
        """Raises CelError."""
        if len(text) > LONGEST_EXPRESSION:
            raise CelError(f"an expression has at most {LONGEST_EXPRESSION} characters")
        try:
            return Program(text, self._env.compile(text), self._error)
        except (RuntimeError, UnicodeError) as error:
            raise CelError(_told(str(error))) from None


class Program:
    """An expression that can be run.

    returns: the type of its value, as CEL names it; ``dyn`` where only a run tells.
    """

    def __init__(self, text: str, expression: "cel.Expression", error: "cel.Type") -> None:
        self.text = text
        self.returns: str = expression.return_type().name().lower()
        self._expression = expression
        self._error = error
        self._parts = cost.read(expression.serialize())
        self._most = cost.work(self._parts, _ANYTHING)
        self._is_light = self._most <= cost.MOST_WORK
        """Whether it ends soon whatever it is given: most do, as they have no loops."""
        self._reckoned: dict[cost.Size, int] = {}
        """Its work by sizes, which are powers of two: so there are few."""

    def run(self, bindings: Mapping[str, Any]) -> Any:
        """Its value, in Python's types; all variables have to be given.  Raises CelError."""
        if not self._is_light:
            self._require_end(bindings)
        try:
            value = self._expression.eval(data=bindings)
            if value.type() != self._error:
                return value.plain_value()
            told = str(value.plain_value())
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelError(_told(str(error))) from None
        raise CelError(_told(told))

    def work(self, size: cost.Size) -> int:
        """The most that it may be to do with values of such a size, in about nanoseconds."""
        if self._most <= _LITTLE:
            return self._most
        rounded = cost.Size(*(1 << each.bit_length() for each in size))
        known = self._reckoned.get(rounded)
        if known is None:
            known = self._reckoned[rounded] = cost.work(self._parts, rounded)
        return known if known <= _LITTLE else cost.work(self._parts, size)

    def _require_end(self, bindings: Mapping[str, Any]) -> None:
        """Refuse what could keep the server busy for long."""
        size = cost.size_of(dict(bindings))
        if cost.work(self._parts, size) > cost.MOST_WORK:
            raise CelError(_BUDGET)

    def __repr__(self) -> str:
        return f"Program({self.text!r})"


@lru_cache(maxsize=64)
def environment(variables: tuple[tuple[str, str], ...]) -> Environment:
    """The environment of some variables and their types, made once."""
    return Environment(variables)


def _types(cel: Any) -> dict[str, Any]:
    """The library's types by the names that this module's users have for them."""
    of = cel.Type
    simple = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "dyn")
    return {
        **{name: getattr(of, name.upper()) for name in simple},
        "list": of.List(of.DYN),
        "map": of.Map(of.STRING, of.DYN),
    }


def _kubernetes(cel: Any, types: Mapping[str, Any]) -> Any:
    """The functions that Kubernetes adds to the language."""
    overloads: dict[str, list[Any]] = {}
    for function in FUNCTIONS:
        known = overloads.setdefault(function.name, [])
        overload = cel.Overload(
            f"corral_{function.name.replace('.', '_')}_{len(known)}",
            types[function.returns],
            [types[each] for each in function.takes],
            function.is_method,
            function.act,
        )
        known.append(overload)
    declared = [cel.FunctionDecl(name, each) for name, each in overloads.items()]
    return cel.CelExtension("kubernetes", declared)


def _told(message: str) -> str:
    """An error in Kubernetes' words, without the library's codes."""
    text = _CODE_AGAIN.sub("", _CODE.sub("", message))
    if absent := _ABSENT.match(text):
        return f"no such key: {absent['key']}"
    if text.startswith("No matching overloads found"):
        return "no such overload"
    return _TOLD.get(text, text)
