"""Pieces of PromQL that are made of what somebody has sent.  Pure.

Nothing gets into a query but by these functions: a name is checked, and a value is quoted, so none
can end the place that it stands in.
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
    """Whether series can have this name."""
    return len(name) <= _LONGEST_NAME and _METRIC.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether a label of a series can have this name."""
    return len(name) <= _LONGEST_NAME and _LABEL.fullmatch(name) is not None


def equals(label: str, value: str) -> str:
    return f"{_checked(label)}={_quoted(value)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """The label is one of some values; of no values at all it is none."""
    return f"{_checked(label)}=~{_any(values)}"


def matchers(selector: LabelSelector) -> list[str]:
    """A label selector as conditions on series.  Raises BadRequest where there is no such one."""
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
    """A pattern for exactly these values: Prometheus anchors it at both ends."""
    return _quoted("|".join(re.escape(value) for value in values))


def _quoted(text: str) -> str:
    """A string of PromQL: its escapes are Go's, of which JSON's are a part."""
    return json.dumps(text)
