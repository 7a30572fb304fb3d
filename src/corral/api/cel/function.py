"""What a function is that expressions may call, beside those of the language."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Function(NamedTuple):
    """One form of a function, with the types that it takes and returns.

    They have the names that ``compile_expression`` takes; of a method the first is what it is
    called on.  ``act`` raises ValueError where it has no value.  ``form`` is what the library knows
    the form by, where that matters.
    """

    name: str
    takes: tuple[str, ...]
    returns: str
    act: Callable[..., Any]
    is_method: bool = True
    form: str = ""


def content(value: Mapping[str, Any], kind: str, form: type[T]) -> T:
    """What a value of a type holds that the language has not: a map with one key, which names it.

    Raises ValueError for one of another type, also where an expression wrote such a map itself.
    """
    held = value.get(kind)
    if isinstance(held, form):
        return held
    raise ValueError("no such overload")
