"""Upper bounds of the cost of function calls, and of the size of their results.  Pure.

Functions in Python also cost the conversion of their arguments and results, which are copied.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from corral.api.cel import transform_map
from corral.api.cel.authorizer import LONGEST_REASON
from corral.api.cel.function import Function
from corral.api.cel.functions import FUNCTIONS
from corral.api.cel.lists import MAX_NUMBERS
from corral.api.cel.patterns import finders

UNBOUNDED: Final = 1 << 62
_OVERHEAD = 32
JOINING = "[_]+[_]"
_PER_ITEM = 32
"""Cost per item of a list that is copied or compared."""
_PER_CHARACTER = 8
"""Cost per character that a regular expression, or a function in Python, reads."""
_ESCAPE_FACTOR = 6
CONVERSION: Final = 300
"""Cost to convert one value between the library and Python."""
_PYTHON_CALL: Final = 20_000
"""Cost to call a function in Python: measured 1 to 20 microseconds, 27 for a pattern."""
_PARSE_FACTOR = 8
"""Parsing a text as a time costs this many times its conversion."""
_COMPARE_DIVISOR = 4
"""Comparing a value costs at most its conversion divided by this."""
_ACCESS_CHECK = 2_000_000
"""Cost of an access check for a user with some thousands of rules.  Kubernetes' budget allows two
in an expression; here about a hundred."""
_ACCESS_REASON = 20_000_000
"""Cost to find the reason of a decision, through as many bindings."""
_LONGEST_ERROR = 1024
"""Characters of the error about a text of the wrong format, at most."""


class Size(NamedTuple):
    """The maximum size of a value.

    characters: of the text, or of each text within.
    items: of the collection.
    inner_items: of each collection within.
    conversion: cost to convert it to or from Python, with all that is within.
    """

    characters: int
    items: int = 1
    inner_items: int = 1
    conversion: int = CONVERSION


CostFunction = Callable[[Sequence[Size], Size], tuple[int, Size]]
"""Returns the maximum cost of a call and the size of its result, from the sizes of the arguments
and the field-wise maximum of those."""


def text_of(characters: int) -> Size:
    """Return the size of a text of at most so many characters."""
    return Size(characters, conversion=CONVERSION + characters)


def _constant(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, Size(1)


def _conditional(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, largest_of(sizes[1:])


def _index(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return 1, Size(largest.characters, largest.inner_items, largest.inner_items, largest.conversion)


def _compare(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return min(size.conversion for size in sizes) // _COMPARE_DIVISOR, Size(1)


def _in(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    item, within = sizes
    compared = min(item.conversion * within.items, within.conversion) // _COMPARE_DIVISOR
    return within.items * _PER_ITEM + item.characters + compared, Size(1)


def _add(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    characters, items = sum(size.characters for size in sizes), sum(size.items for size in sizes)
    conversion = sum(size.conversion for size in sizes)
    return characters + items * _PER_ITEM, Size(characters, items, largest.inner_items, conversion)


def _join(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    items, conversion = sum(size.items for size in sizes), sum(size.conversion for size in sizes)
    return items * _PER_ITEM, Size(largest.characters, items, largest.inner_items, conversion)


def _multiply(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    result = max(1, largest.items)
    for size in sizes:
        result = min(result * max(1, size.characters), UNBOUNDED)
    return result, text_of(result)


def _replace(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    text, _old, new, *_most = sizes
    result = min((text.characters + 1) * max(1, new.characters), UNBOUNDED)
    return result, text_of(result)


def _split(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    characters = largest.characters
    return characters * _PER_ITEM, Size(
        characters, max(1, characters), 1, (characters + 1) * (CONVERSION + 1)
    )


def _escape(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    result = (largest.characters + _OVERHEAD) * _ESCAPE_FACTOR
    return result, text_of(result)


def _scan(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return sum(size.characters for size in sizes) * _PER_CHARACTER, largest


_LIBRARY: Final[Mapping[str, CostFunction]] = {
    **dict.fromkeys(("_&&_", "_||_", "!_", "@not_strictly_false", "size", "has"), _constant),
    **dict.fromkeys(("", "_[_]", "_[?_]", "_?._"), _index),
    **dict.fromkeys(("_==_", "_!=_"), _compare),
    **dict.fromkeys(("@in", "_in_"), _in),
    **dict.fromkeys(("join", "format"), _multiply),
    "replace": _replace,
    **dict.fromkeys(("bytes", "strings.quote"), _escape),
    **dict.fromkeys(("base64.encode", "base64.decode"), _escape),
    "_?_:_": _conditional,
    "_+_": _add,
    JOINING: _join,
    "split": _split,
}
"""Costs of the library's functions; a field selection has no name.  All others scan their texts."""


# ---------------------------------------------------------- functions in Python


def _search(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return largest.conversion // _COMPARE_DIVISOR + largest.characters * _PER_CHARACTER, Size(1)


def _aggregate(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    found = Size(largest.characters, largest.inner_items, largest.inner_items, largest.conversion)
    return largest.conversion // _COMPARE_DIVISOR, found


def _slice(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 0, sizes[0]


def _flatten(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """The result has no more items than the argument has values."""
    items = largest.conversion // CONVERSION
    return largest.conversion, Size(
        largest.characters, items, largest.inner_items, sizes[0].conversion
    )


def _range(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 0, Size(1, MAX_NUMBERS, conversion=(MAX_NUMBERS + 1) * CONVERSION)


def _sort(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return largest.items.bit_length() * largest.conversion // _COMPARE_DIVISOR, sizes[0]


def _pairwise(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return min(largest.items * largest.conversion, UNBOUNDED) // (8 * _COMPARE_DIVISOR), sizes[0]


def _pairwise_sets(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return _pairwise(sizes, largest)[0], Size(1)


def _predicate(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return sum(size.characters for size in sizes) * _PER_CHARACTER, Size(1)


def _object(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    """The result is a map with a key that names its type, and some texts."""
    characters = sum(size.characters for size in sizes) + _LONGEST_ERROR
    return characters * _PER_CHARACTER, Size(characters, 8, 8, 16 * CONVERSION + characters)


def _text(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    characters = sum(size.characters for size in sizes)
    return characters * _PER_CHARACTER, text_of(characters + _OVERHEAD)


def _query(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Every second character may begin another key, with a list of one text."""
    characters = largest.characters
    return characters * CONVERSION, Size(
        characters, characters, characters, (characters + 1) * 2 * CONVERSION
    )


def _find(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return _PYTHON_CALL + sum(size.characters for size in sizes) * _PER_ITEM, text_of(
        largest.characters
    )


def _find_all(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Each position of a text may have all that follows scanned."""
    characters = largest.characters
    found = Size(characters, characters, 1, (characters + 1) * (CONVERSION + 1))
    return _PYTHON_CALL + 2 * characters**2, found


def _insert(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """The map is converted to Python and back, with one more entry."""
    conversion = sum(size.conversion for size in sizes)
    return 0, Size(largest.characters, largest.items + 1, largest.inner_items, conversion)


def _validate(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    found = Size(_LONGEST_ERROR, _OVERHEAD, _OVERHEAD, _OVERHEAD * CONVERSION + _LONGEST_ERROR)
    return (largest.characters + _LONGEST_ERROR) * _PER_CHARACTER, found


def _check(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """The decision holds the attributes of the check, for ``reason``."""
    conversion = sum(size.conversion for size in sizes) + 8 * CONVERSION
    return _ACCESS_CHECK, Size(largest.characters + _OVERHEAD, 8, 8, conversion)


def _reason(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return _ACCESS_REASON, text_of(LONGEST_REASON)


def _parse(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Parse texts as times, durations or bytes."""
    return largest.conversion * _PARSE_FACTOR, sizes[0]


def _parse_one(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return (CONVERSION + largest.characters) * _PARSE_FACTOR, text_of(largest.characters)


def _parse_and(cost_of: CostFunction) -> CostFunction:
    def parse_and_call(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
        units, result = cost_of(sizes, largest)
        return _parse(sizes, largest)[0] + units, result

    return parse_and_call


_LISTS: Final[Mapping[str, CostFunction]] = {
    **dict.fromkeys(("sum", "min", "max"), _aggregate),
    **dict.fromkeys(("slice", "reverse"), _slice),
    "sort": _sort,
    "distinct": _pairwise,
}
_PYTHON: Final[Mapping[str, CostFunction]] = {
    **_LISTS,
    "flatten": _flatten,
    "lists.range": _range,
    **dict.fromkeys(("indexOf", "lastIndexOf", "isSorted"), _search),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _pairwise_sets),
    **dict.fromkeys(("quantity", "add", "sub", "ip", "cidr", "masked", "url", "semver"), _object),
    **dict.fromkeys(
        ("isQuantity", "sign", "isInteger", "asInteger", "asApproximateFloat"), _predicate
    ),
    **dict.fromkeys(("isLessThan", "isGreaterThan", "compareTo"), _predicate),
    **dict.fromkeys(
        ("isIP", "ip.isCanonical", "family", "isUnspecified", "isLoopback"), _predicate
    ),
    **dict.fromkeys(("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"), _predicate),
    **dict.fromkeys(("isCIDR", "containsIP", "containsCIDR", "prefixLength", "isURL"), _predicate),
    **dict.fromkeys(("isSemver", "major", "minor", "patch", "hasValue"), _predicate),
    **dict.fromkeys(("allowed", "errored"), _predicate),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), _text),
    "reason": _reason,
    "error": _text,
    **dict.fromkeys(("path", "group", "serviceAccount", "resource", "subresource"), _object),
    **dict.fromkeys(("namespace", "name", "fieldSelector", "labelSelector"), _object),
    "getQuery": _query,
    "string": _escape,
    "value": _scan,
    "find": _find,
    "findAll": _find_all,
    transform_map.FUNCTION: _insert,
    "validate": _validate,
    "check": _check,
}
_SCALARS: Final = frozenset({"bool", "int", "double", "string", "bytes", "timestamp", "duration"})


def _python_functions(functions: Sequence[Function]) -> Mapping[str, CostFunction]:
    """Return the cost functions of functions in Python, with conversion of arguments and results.

    Raises KeyError for a function without one.
    """
    parameters: dict[str, list[tuple[str, ...]]] = {}
    for function in functions:
        parameters.setdefault(function.name, []).append(function.parameters)
    return {
        name: _with_conversion(_cost_function(name), forms) for name, forms in parameters.items()
    }


def _cost_function(name: str) -> CostFunction:
    if not name.startswith("@"):
        return _object if name.startswith("format.") else _PYTHON[name]
    form, _dot, function = name.partition(".")
    if function:
        return _parse_and(_LISTS[function])
    return _parse if "_" in form else _parse_one


def _with_conversion(cost_of: CostFunction, forms: Sequence[Sequence[str]]) -> CostFunction:
    def converted(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
        given = 0
        for index, size in enumerate(sizes):
            is_plain = all(form[index] in _SCALARS for form in forms if index < len(form))
            given += CONVERSION + size.characters if is_plain else size.conversion
        units, result = cost_of(sizes, largest)
        return _PYTHON_CALL + given + units + result.conversion, result

    return converted


_FINDERS: Final = finders(lambda _text, _pattern: "", lambda _text, _pattern: [])
_COST_FUNCTIONS: Final = {**_LIBRARY, **_python_functions((*FUNCTIONS, *_FINDERS))}


def call_cost(function: str, sizes: Sequence[Size]) -> tuple[int, Size]:
    """Return the maximum cost of a call, and the size of its result."""
    return _COST_FUNCTIONS.get(function, _scan)(sizes, largest_of(sizes))


def largest_of(sizes: Iterable[Size]) -> Size:
    """Return the field-wise maximum of sizes."""
    largest = Size(0, conversion=0)
    for size in sizes:
        largest = Size(*map(max, largest, size))
    return largest
