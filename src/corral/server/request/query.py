"""Query parameters: parsing, and errors in Kubernetes' words."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import parse_qsl

from corral.api.errors import LONGEST_MESSAGE, BadRequest, Cause, Details, Invalid, shortened

MAX_PARAMETERS = 4096
"""Queries are parsed before authentication, so they are bounded."""

_NONE: Mapping[str, str] = MappingProxyType({})
_FALSE = ("0", "false")


def pairs(query: str) -> list[tuple[str, str]]:
    """Return all parameters in order.  Raises BadRequest."""
    try:
        return parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        raise BadRequest(f"the query is not readable: {error}") from None


def parse(query: str) -> Mapping[str, str]:
    """Return the first value of each parameter.  Raises BadRequest."""
    if not query:
        return _NONE
    return MappingProxyType(dict(reversed(pairs(query))))


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return whether a flag is set: by any value but 0 and false, as in kube-apiserver."""
    return name in query and query[name].lower() not in _FALSE


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a non-negative integer; None if absent.  Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f'{name}: Invalid value: "{text}": must be a whole number, 0 or more')
    return int(text)


def revision(query: Mapping[str, str]) -> int | None:
    """Return ``resourceVersion``; None if absent.  Raises BadRequest."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f'resourceVersion: Invalid value: "{text}": must be a decimal number')
    return int(text)


def dry_run(values: list[str], options: str) -> bool:
    """Return whether a request is a dry run; ``options`` is the kind of options, for errors."""
    unsupported = [value for value in values if value not in ("", "All")]
    if unsupported:
        shown = ",".join(f'"{value}"' for value in unsupported)
        raise bad_option(
            options, "dryRun", f'Unsupported value: [{shown}]: supported values: "All"'
        )
    return "All" in values


def field_validation(query: Mapping[str, str], options: str) -> str:
    """Return the mode for unknown fields: ``Strict``, ``Warn`` or ``Ignore``.  Raises Invalid."""
    mode = query.get("fieldValidation") or "Warn"
    if mode not in ("Strict", "Warn", "Ignore"):
        supported = 'supported values: "Ignore", "Strict", "Warn"'
        raise bad_option(options, "fieldValidation", f'Unsupported value: "{mode}": {supported}')
    return mode


def bad_option(
    options: str, field: str, message: str, reason: str = "FieldValueNotSupported"
) -> Invalid:
    """Return the error for a parameter's value; long values are shortened in the message."""
    message = shortened(message, LONGEST_MESSAGE)
    details = Details(group="meta.k8s.io", kind=options, causes=[Cause(field, message, reason)])
    return Invalid(f'{options}.meta.k8s.io "" is invalid: {field}: {message}', details=details)
