"""Functions that expressions may call, besides those of the language."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Function(NamedTuple):
    """An overload of a function.

    parameters, returns: types, in the words of ``compile_expression``; the first parameter of a
        method is its receiver.
    implementation: raises ValueError if it has no result.
    overload_id: the library's name of the overload, if that matters.
    """

    name: str
    parameters: tuple[str, ...]
    returns: str
    implementation: Callable[..., Any]
    is_method: bool = True
    overload_id: str = ""


def content(value: Mapping[str, Any], kind: str, python_type: type[T]) -> T:
    """Return the content of a value whose type CEL lacks: a map with one key, which names the type.

    Raises ValueError for a value of another type; an expression may have written the map itself.
    """
    inner = value.get(kind)
    if isinstance(inner, python_type):
        return inner
    raise ValueError("no such overload")
