"""Named formats of texts, and validation by them (Kubernetes' format library).

Functions in Python cannot return optional values; so ``format.named`` and ``validate`` return a map
that has only ``hasValue`` and ``value`` of an optional.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from corral.api.cel.function import Function, content
from corral.api.formats import FORMATS
from corral.api.names import (
    label_faults,
    label_key_faults,
    label_value_faults,
    service_name_faults,
    subdomain_faults,
)

_FORMAT = "kubernetes.NamedFormat"
_OPTIONAL = "optional_type"
_LONGEST = 4096
"""Characters of a text, except base64: a longer one is invalid without a check."""


def _prefix_faults(faults: Callable[[str], Sequence[str]], text: str) -> Sequence[str]:
    """Return the faults of a name's prefix, which may end with a dash."""
    return faults(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _format_faults(name: str, fault: str, text: str) -> Sequence[str]:
    return () if FORMATS[name](text) else (fault,)


_FAULTS: Final[Mapping[str, Callable[[str], Sequence[str]]]] = {
    "dns1123Label": label_faults,
    "dns1123Subdomain": subdomain_faults,
    "dns1035Label": service_name_faults,
    "qualifiedName": label_key_faults,
    "dns1123LabelPrefix": partial(_prefix_faults, label_faults),
    "dns1123SubdomainPrefix": partial(_prefix_faults, subdomain_faults),
    "dns1035LabelPrefix": partial(_prefix_faults, service_name_faults),
    "labelValue": label_value_faults,
    "uri": partial(_format_faults, "uri", "invalid URI for request"),
    "uuid": partial(_format_faults, "uuid", "does not match the UUID format"),
    "byte": partial(_format_faults, "byte", "invalid base64"),
    "date": partial(_format_faults, "date", "invalid date"),
    "datetime": partial(_format_faults, "datetime", "invalid datetime"),
}


def _format(name: str) -> dict[str, str]:
    return {_FORMAT: name}


def _named(name: str) -> dict[str, list[Any]]:
    return {_OPTIONAL: [_format(name)] if name in _FAULTS else []}


def _validate(named: Mapping[str, str], text: str) -> dict[str, list[Any]]:
    name = content(named, _FORMAT, str)
    if name not in _FAULTS:
        raise ValueError("no such overload")
    if len(text) > _LONGEST and name != "byte":
        return {_OPTIONAL: [[f"must be no more than {_LONGEST} bytes"]]}
    faults = list(_FAULTS[name](text))
    return {_OPTIONAL: [faults] if faults else []}


def _value(value: Mapping[str, list[Any]]) -> Any:
    values = content(value, _OPTIONAL, list)
    if not values:
        raise ValueError("optional.none() dereference")
    return values[0]


NAMED_FORMATS: Final = (
    *(
        Function(f"format.{name}", (), "map", partial(_format, name), is_method=False)
        for name in _FAULTS
    ),
    Function("format.named", ("string",), "map", _named, is_method=False),
    Function("validate", ("map", "string"), "map", _validate),
    Function("hasValue", ("map",), "bool", lambda value: bool(content(value, _OPTIONAL, list))),
    Function("value", ("map",), "dyn", _value),
)
