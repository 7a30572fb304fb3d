"""Named forms of texts, and what is wrong with a text by one of them (Kubernetes' format library).

The library takes no optional value from a function in Python; so what ``format.named`` and
``validate`` give is a map that has ``hasValue`` and ``value`` as one, and nothing else.
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
"""Letters that are looked at: what is longer has no form but base64's."""


def _prefix(faults: Callable[[str], Sequence[str]], text: str) -> Sequence[str]:
    """What is wrong with the beginning of a name, which may end with a dash."""
    return faults(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _fits(name: str, fault: str, text: str) -> Sequence[str]:
    return () if FORMATS[name](text) else (fault,)


_FORMS: Final[Mapping[str, Callable[[str], Sequence[str]]]] = {
    "dns1123Label": label_faults,
    "dns1123Subdomain": subdomain_faults,
    "dns1035Label": service_name_faults,
    "qualifiedName": label_key_faults,
    "dns1123LabelPrefix": partial(_prefix, label_faults),
    "dns1123SubdomainPrefix": partial(_prefix, subdomain_faults),
    "dns1035LabelPrefix": partial(_prefix, service_name_faults),
    "labelValue": label_value_faults,
    "uri": partial(_fits, "uri", "invalid URI for request"),
    "uuid": partial(_fits, "uuid", "does not match the UUID format"),
    "byte": partial(_fits, "byte", "invalid base64"),
    "date": partial(_fits, "date", "invalid date"),
    "datetime": partial(_fits, "datetime", "invalid datetime"),
}


def _form(name: str) -> dict[str, str]:
    return {_FORMAT: name}


def _named(name: str) -> dict[str, list[Any]]:
    return {_OPTIONAL: [_form(name)] if name in _FORMS else []}


def _validate(form: Mapping[str, str], text: str) -> dict[str, list[Any]]:
    """What is wrong with a text, if anything."""
    name = content(form, _FORMAT, str)
    if name not in _FORMS:
        raise ValueError("no such overload")
    if len(text) > _LONGEST and name != "byte":
        return {_OPTIONAL: [[f"must be no more than {_LONGEST} bytes"]]}
    faults = list(_FORMS[name](text))
    return {_OPTIONAL: [faults] if faults else []}


def _value(value: Mapping[str, list[Any]]) -> Any:
    held = content(value, _OPTIONAL, list)
    if not held:
        raise ValueError("optional.none() dereference")
    return held[0]


NAMED_FORMATS: Final = (
    *(
        Function(f"format.{name}", (), "map", partial(_form, name), is_method=False)
        for name in _FORMS
    ),
    Function("format.named", ("string",), "map", _named, is_method=False),
    Function("validate", ("map", "string"), "map", _validate),
    Function("hasValue", ("map",), "bool", lambda value: bool(content(value, _OPTIONAL, list))),
    Function("value", ("map",), "dyn", _value),
)
