"""Query parameters: read once, refused in Kubernetes' words."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import parse_qsl

from corral.api.errors import LONGEST_MESSAGE, BadRequest, Cause, Details, Invalid, shortened

MOST_PARAMETERS = 4096
"""Who sends a query is not known yet when it is read."""

_NONE: Mapping[str, str] = MappingProxyType({})
_FALSE = ("0", "false")


def pairs(query: str) -> list[tuple[str, str]]:
    """All parameters as they stand.  Raises BadRequest."""
    try:
        return parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS
        )
    except ValueError as error:
        raise BadRequest(f"the query is not readable: {error}") from None


def parse(query: str) -> Mapping[str, str]:
    """The first value of each parameter.  Raises BadRequest."""
    if not query:
        return _NONE
    return MappingProxyType(dict(reversed(pairs(query))))


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on: anything but 0 and false is, as the real server reads it."""
    return name in query and query[name].lower() not in _FALSE


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number that is not negative; None where it is absent.  Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f'{name}: Invalid value: "{text}": must be a whole number, 0 or more')
    return int(text)


def revision(query: Mapping[str, str]) -> int | None:
    """``resourceVersion``; None where it is absent.  Raises Invalid."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f'resourceVersion: Invalid value: "{text}": must be a decimal number')
    return int(text)


def dry_run(values: list[str], options: str) -> bool:
    """Whether nothing shall be stored; ``options`` names the kind of options for the message."""
    wrong = [value for value in values if value not in ("", "All")]
    if wrong:
        shown = ",".join(f'"{value}"' for value in wrong)
        raise bad_option(
            options, "dryRun", f'Unsupported value: [{shown}]: supported values: "All"'
        )
    return "All" in values


def field_validation(query: Mapping[str, str], options: str) -> str:
    """What to do about unknown fields: ``Strict``, ``Warn`` or ``Ignore``.  Raises Invalid."""
    mode = query.get("fieldValidation") or "Warn"
    if mode not in ("Strict", "Warn", "Ignore"):
        known = 'supported values: "Ignore", "Strict", "Warn"'
        raise bad_option(options, "fieldValidation", f'Unsupported value: "{mode}": {known}')
    return mode


def bad_option(
    options: str, field: str, message: str, reason: str = "FieldValueNotSupported"
) -> Invalid:
    """The refusal of a parameter's value; the message repeats no more than its beginning."""
    message = shortened(message, LONGEST_MESSAGE)
    details = Details(group="meta.k8s.io", kind=options, causes=[Cause(field, message, reason)])
    return Invalid(f'{options}.meta.k8s.io "" is invalid: {field}: {message}', details=details)
