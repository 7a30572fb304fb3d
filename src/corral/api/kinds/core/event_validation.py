"""Validation of events (core/v1's and events.k8s.io/v1's).

Events have two forms: older ones count occurrences, newer ones have the time of the occurrence
(``eventTime``), the reporter and the action.  events.k8s.io accepts the newer form only, and only
the series of an event can be changed.
"""

from collections.abc import Iterator
from typing import Any, Final

from corral.api.encoding import same
from corral.api.errors import Cause
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import invalid, required
from corral.api.names import label_key_faults
from corral.api.object import Document
from corral.api.time import parse_rfc3339

_LONGEST: Final = 128
_LONGEST_NOTE: Final = 1024
_TYPES: Final = ("Normal", "Warning")
_OLDER_FIELDS: Final = ("firstTimestamp", "lastTimestamp", "count")
"""Fields of the older form, beside its source, that the newer one does not have."""
_IMMUTABLE: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count"),
    *("type", "eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
_TIMES: Final = ("firstTimestamp", "lastTimestamp", "eventTime")
_SMALLEST_COUNT: Final = 2


def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    """Validate an event that was written by the core API."""
    return Verdict([*_check_event(document, "reportingComponent")])


def validate_newer(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate an event that was written by events.k8s.io."""
    causes = [*_check_event(document, "reportingController")]
    if old is None:
        causes += _check_newer_form(document)
    else:
        causes += _check_changes(document, old)
    if old is None or not same(document.get("series"), old.get("series")):
        causes += _check_series(document.get("series"))
    return Verdict(causes)


def _check_event(event: Document, reporter: str) -> Iterator[Cause]:
    object_namespace = at(event, "involvedObject", "namespace") or ""
    namespace = at(event, "metadata", "namespace") or ""
    is_newer = event.get("eventTime") is not None
    is_consistent = namespace == object_namespace or (is_newer and object_namespace)
    if not is_consistent and not (not object_namespace and namespace in ("default", "kube-system")):
        yield invalid(
            "involvedObject.namespace", object_namespace, "does not match event.namespace"
        )
    if is_newer:
        yield from _check_reporter(event, reporter)


def _check_reporter(event: Document, reporter: str) -> Iterator[Cause]:
    """Check reporter, action and reason."""
    component = event.get("reportingComponent") or ""
    if not component:
        yield required(reporter)
    for fault in label_key_faults(component):
        yield invalid(reporter, component, fault)
    for field in ("reportingInstance", "action", "reason"):
        value = event.get(field) or ""
        if not value:
            yield required(field)
        if len(value.encode()) > _LONGEST:
            yield invalid(field, "", f"can have at most {_LONGEST} characters")
    if len((event.get("message") or "").encode()) > _LONGEST_NOTE:
        yield invalid("message", "", f"can have at most {_LONGEST_NOTE} characters")


def _check_newer_form(event: Document) -> Iterator[Cause]:
    if event.get("eventTime") is None:
        yield required("eventTime")
    if event.get("type") not in _TYPES:
        yield invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for field in _OLDER_FIELDS:
        if event.get(field):
            yield invalid(field, "", "needs to be unset")
    if any((event.get("source") or {}).values()):
        yield invalid("source", "", "needs to be unset")


def _check_series(series: Any) -> Iterator[Cause]:
    if series is None:
        return
    if (series.get("count") or 0) < _SMALLEST_COUNT:
        yield invalid("series.count", "", f"should be at least {_SMALLEST_COUNT}")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _check_changes(event: Document, old: Document) -> Iterator[Cause]:
    for field in _IMMUTABLE:
        value, stored = event.get(field) or None, old.get(field) or None
        if not (same(value, stored) or (field in _TIMES and _is_same_time(value, stored))):
            yield invalid(field, value, "field is immutable")


def _is_same_time(value: Any, stored: Any) -> bool:
    """Return whether two times are the same to the microsecond, in any notation."""
    try:
        return bool(value and stored) and parse_rfc3339(value) == parse_rfc3339(stored)
    except ValueError:
        return False  # stored before times were validated
