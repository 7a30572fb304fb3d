"""PromQL matchers from label selectors.  Pure.

These functions check names and quote values: clients cannot inject other PromQL into a query.
"""

import json
import re
from collections.abc import Iterable

from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, Requirement

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_LONGEST_NAME = 256


def is_metric(name: str) -> bool:
    """Return whether a name is a valid metric name."""
    return len(name) <= _LONGEST_NAME and _METRIC.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Return whether a name is a valid label name."""
    return len(name) <= _LONGEST_NAME and _LABEL.fullmatch(name) is not None


def equals(label: str, value: str) -> str:
    return f"{_checked(label)}={_quoted(value)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """Return a matcher of any of some values; without values it matches nothing."""
    return f"{_checked(label)}=~{_any(values)}"


def matchers(selector: LabelSelector) -> list[str]:
    """Return the matchers of a label selector.  Raises BadRequest for numeric operators."""
    return [_matcher(each) for each in selector.requirements]


def _matcher(requirement: Requirement) -> str:
    label = _checked(requirement.key)
    match requirement.operator:
        case "=" | "==":
            return f"{label}={_quoted(requirement.values[0])}"
        case "!=":
            return f"{label}!={_quoted(requirement.values[0])}"
        case "in":
            return f"{label}=~{_any(requirement.values)}"
        case "notin":
            return f"{label}!~{_any(requirement.values)}"
        case "exists":
            return f'{label}!=""'
        case "!":
            return f'{label}=""'
        case other:
            raise BadRequest(f'a metric cannot be selected by "{other}": labels are no numbers')


def _checked(label: str) -> str:
    if not is_label(label):
        raise BadRequest(f"{label[:50]!r} cannot be the label of a metric in Prometheus")
    return label


def _any(values: Iterable[str]) -> str:
    """Return a pattern for exactly these values: Prometheus anchors it at both ends."""
    return _quoted("|".join(re.escape(value) for value in values))


def _quoted(text: str) -> str:
    """Return a string literal of PromQL: its escapes are Go's, which include JSON's."""
    return json.dumps(text)
