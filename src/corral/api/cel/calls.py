"""What calls of functions may do at most, and how large their values are.  Pure.

Those in Python cost what they are given and give, too: all of it is made anew on the way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from corral.api.cel import transform_map
from corral.api.cel.authorizer import LONGEST_REASON
from corral.api.cel.function import Function
from corral.api.cel.functions import FUNCTIONS
from corral.api.cel.lists import MOST_NUMBERS
from corral.api.cel.patterns import finders

ENDLESS: Final = 1 << 62
_SHORTEST = 32
JOINING = "[_]+[_]"
_OF_ITEM = 32
"""Units for each item of a list that is copied or compared."""
_OF_LETTER = 8
"""Units for each letter that a regular expression, or a function in Python, looks at."""
_ESCAPED = 6
OF_GIVEN: Final = 300
"""Units to make a value of the library's from one of Python's, or the other way."""
_OF_CALL: Final = 20_000
"""Units to call a function in Python: 1 to 20 microseconds by what it does, 27 for a pattern."""
_OF_READING = 8
"""How often as much as giving it a text takes to be read as a time."""
_COMPARED = 4
"""What part of giving it comparing a value takes, at most."""
_OF_RIGHT = 2_000_000
"""Units to look up whether somebody may do something, who has some thousands of rules.  Kubernetes
lets an expression ask twice; here it may a hundred times."""
_OF_REASON = 20_000_000
"""Units to look up why, through as many bindings."""
_OF_TOLD = 1024
"""Letters of what is told of a text that has not the form it should have, at most."""


class Size(NamedTuple):
    """A text of at most so many letters, or a collection of at most so many items.

    letters: of the text, or of each text within.
    items: of the collection.
    inner: of each collection within.
    whole: units to give it to Python or take it from there, with all that is within.
    """

    letters: int
    items: int = 1
    inner: int = 1
    whole: int = OF_GIVEN


Reckon = Callable[[Sequence[Size], Size], tuple[int, Size]]
"""From the sizes of what a function is called with, and the largest in each way, to the units that
it may do, and the size of its value."""


def text_of(letters: int) -> Size:
    """A text of at most so many letters."""
    return Size(letters, whole=OF_GIVEN + letters)


def _answer(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, Size(1)


def _choose(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, largest_of(sizes[1:])


def _pick(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return 1, Size(largest.letters, largest.inner, largest.inner, largest.whole)


def _compare(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return min(each.whole for each in sizes) // _COMPARED, Size(1)


def _is_in(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    item, within = sizes
    compared = min(item.whole * within.items, within.whole) // _COMPARED
    return within.items * _OF_ITEM + item.letters + compared, Size(1)


def _add(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    letters, items = sum(each.letters for each in sizes), sum(each.items for each in sizes)
    whole = sum(each.whole for each in sizes)
    return letters + items * _OF_ITEM, Size(letters, items, largest.inner, whole)


def _join(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    items, whole = sum(each.items for each in sizes), sum(each.whole for each in sizes)
    return items * _OF_ITEM, Size(largest.letters, items, largest.inner, whole)


def _multiply(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    made = max(1, largest.items)
    for each in sizes:
        made = min(made * max(1, each.letters), ENDLESS)
    return made, text_of(made)


def _replace(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    text, _old, new, *_most = sizes
    made = min((text.letters + 1) * max(1, new.letters), ENDLESS)
    return made, text_of(made)


def _split(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    letters = largest.letters
    return letters * _OF_ITEM, Size(letters, max(1, letters), 1, (letters + 1) * (OF_GIVEN + 1))


def _write(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    made = (largest.letters + _SHORTEST) * _ESCAPED
    return made, text_of(made)


def _look(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return sum(each.letters for each in sizes) * _OF_LETTER, largest


_FUNCTIONS: Final[Mapping[str, Reckon]] = {
    **dict.fromkeys(("_&&_", "_||_", "!_", "@not_strictly_false", "size", "has"), _answer),
    **dict.fromkeys(("", "_[_]", "_[?_]", "_?._"), _pick),
    **dict.fromkeys(("_==_", "_!=_"), _compare),
    **dict.fromkeys(("@in", "_in_"), _is_in),
    **dict.fromkeys(("join", "format"), _multiply),
    "replace": _replace,
    **dict.fromkeys(("bytes", "strings.quote"), _write),
    **dict.fromkeys(("base64.encode", "base64.decode"), _write),
    "_?_:_": _choose,
    "_+_": _add,
    JOINING: _join,
    "split": _split,
}
"""What the library's functions may do; a field that is selected has no name.  All others look at
their texts."""


# ---------------------------------------------------------- functions in Python


def _seek(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return largest.whole // _COMPARED + largest.letters * _OF_LETTER, Size(1)


def _take(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    found = Size(largest.letters, largest.inner, largest.inner, largest.whole)
    return largest.whole // _COMPARED, found


def _part(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 0, sizes[0]


def _flatten(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """No more items than values that are given."""
    items = largest.whole // OF_GIVEN
    return largest.whole, Size(largest.letters, items, largest.inner, sizes[0].whole)


def _range(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 0, Size(1, MOST_NUMBERS, whole=(MOST_NUMBERS + 1) * OF_GIVEN)


def _sort(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return largest.items.bit_length() * largest.whole // _COMPARED, sizes[0]


def _pair(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return min(largest.items * largest.whole, ENDLESS) // (8 * _COMPARED), sizes[0]


def _pair_sets(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return _pair(sizes, largest)[0], Size(1)


def _ask(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return sum(each.letters for each in sizes) * _OF_LETTER, Size(1)


def _form(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    """A map with a key that names its type, and some texts."""
    letters = sum(each.letters for each in sizes) + _OF_TOLD
    return letters * _OF_LETTER, Size(letters, 8, 8, 16 * OF_GIVEN + letters)


def _tell(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    letters = sum(each.letters for each in sizes)
    return letters * _OF_LETTER, text_of(letters + _SHORTEST)


def _query(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Every second letter may begin another key, with a list of one text."""
    letters = largest.letters
    return letters * OF_GIVEN, Size(letters, letters, letters, (letters + 1) * 2 * OF_GIVEN)


def _find(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return _OF_CALL + sum(each.letters for each in sizes) * _OF_ITEM, text_of(largest.letters)


def _find_all(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Each place of a text may have all that follows looked at."""
    letters = largest.letters
    found = Size(letters, letters, 1, (letters + 1) * (OF_GIVEN + 1))
    return _OF_CALL + 2 * letters**2, found


def _insert(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """The map goes to Python and back, with one more."""
    whole = sum(each.whole for each in sizes)
    return 0, Size(largest.letters, largest.items + 1, largest.inner, whole)


def _validate(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    found = Size(_OF_TOLD, _SHORTEST, _SHORTEST, _SHORTEST * OF_GIVEN + _OF_TOLD)
    return (largest.letters + _OF_TOLD) * _OF_LETTER, found


def _check(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """What is asked about is kept, for who asks why."""
    whole = sum(each.whole for each in sizes) + 8 * OF_GIVEN
    return _OF_RIGHT, Size(largest.letters + _SHORTEST, 8, 8, whole)


def _why(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return _OF_REASON, text_of(LONGEST_REASON)


def _read(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    """Texts become times."""
    return largest.whole * _OF_READING, sizes[0]


def _read_one(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return (OF_GIVEN + largest.letters) * _OF_READING, text_of(largest.letters)


def _read_and(reckon: Reckon) -> Reckon:
    def both(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
        units, made = reckon(sizes, largest)
        return _read(sizes, largest)[0] + units, made

    return both


_OF_LISTS: Final[Mapping[str, Reckon]] = {
    **dict.fromkeys(("sum", "min", "max"), _take),
    **dict.fromkeys(("slice", "reverse"), _part),
    "sort": _sort,
    "distinct": _pair,
}
_IN_PYTHON: Final[Mapping[str, Reckon]] = {
    **_OF_LISTS,
    "flatten": _flatten,
    "lists.range": _range,
    **dict.fromkeys(("indexOf", "lastIndexOf", "isSorted"), _seek),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _pair_sets),
    **dict.fromkeys(("quantity", "add", "sub", "ip", "cidr", "masked", "url", "semver"), _form),
    **dict.fromkeys(("isQuantity", "sign", "isInteger", "asInteger", "asApproximateFloat"), _ask),
    **dict.fromkeys(("isLessThan", "isGreaterThan", "compareTo"), _ask),
    **dict.fromkeys(("isIP", "ip.isCanonical", "family", "isUnspecified", "isLoopback"), _ask),
    **dict.fromkeys(("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"), _ask),
    **dict.fromkeys(("isCIDR", "containsIP", "containsCIDR", "prefixLength", "isURL"), _ask),
    **dict.fromkeys(("isSemver", "major", "minor", "patch", "hasValue"), _ask),
    **dict.fromkeys(("allowed", "errored"), _ask),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), _tell),
    "reason": _why,
    "error": _tell,
    **dict.fromkeys(("path", "group", "serviceAccount", "resource", "subresource"), _form),
    **dict.fromkeys(("namespace", "name", "fieldSelector", "labelSelector"), _form),
    "getQuery": _query,
    "string": _write,
    "value": _look,
    "find": _find,
    "findAll": _find_all,
    transform_map.FUNCTION: _insert,
    "validate": _validate,
    "check": _check,
}
_PLAIN: Final = frozenset({"bool", "int", "double", "string", "bytes", "timestamp", "duration"})


def in_python(functions: Sequence[Function]) -> Mapping[str, Reckon]:
    """What calls of functions in Python do: also to give what they take, and take what they give.

    Raises KeyError for one of which nothing is known.
    """
    takes: dict[str, list[tuple[str, ...]]] = {}
    for each in functions:
        takes.setdefault(each.name, []).append(each.takes)
    return {name: _crossing(_of_name(name), forms) for name, forms in takes.items()}


def _of_name(name: str) -> Reckon:
    if not name.startswith("@"):
        return _form if name.startswith("format.") else _IN_PYTHON[name]
    form, _dot, function = name.partition(".")
    if function:
        return _read_and(_OF_LISTS[function])
    return _read if "_" in form else _read_one


def _crossing(reckon: Reckon, forms: Sequence[Sequence[str]]) -> Reckon:
    def crossed(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
        given = 0
        for index, size in enumerate(sizes):
            is_plain = all(each[index] in _PLAIN for each in forms if index < len(each))
            given += OF_GIVEN + size.letters if is_plain else size.whole
        units, made = reckon(sizes, largest)
        return _OF_CALL + given + units + made.whole, made

    return crossed


_FINDERS: Final = finders(lambda _text, _pattern: "", lambda _text, _pattern: [])
_CALLED: Final = {**_FUNCTIONS, **in_python((*FUNCTIONS, *_FINDERS))}


def called(function: str, sizes: Sequence[Size]) -> tuple[int, Size]:
    """The units that a call may do at most, and the size of its value."""
    return _CALLED.get(function, _look)(sizes, largest_of(sizes))


def largest_of(sizes: Iterable[Size]) -> Size:
    """What is as large as all of some together, in each way."""
    largest = Size(0, whole=0)
    for size in sizes:
        largest = Size(*map(max, largest, size))
    return largest
