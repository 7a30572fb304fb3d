"""What makes an event valid (core/v1's and events.k8s.io/v1's validation).

Events have two forms: older ones count how often something happened, newer ones have the time at
which it did (``eventTime``), and name who reports it and what was done.  The newer API takes the
newer form alone, and lets nothing of an event be changed but its series.
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
_OLDER: Final = ("firstTimestamp", "lastTimestamp", "count")
"""What the older form has beside its source, and the newer one has not."""
_FIXED: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count"),
    *("type", "eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
_TIMES: Final = ("firstTimestamp", "lastTimestamp", "eventTime")
_FEWEST: Final = 2


def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    """An event as it is written by the core API."""
    return Verdict([*_of_both(document, "reportingComponent")])


def validate_newer(document: Document, old: Document | None, _user: str) -> Verdict:
    """An event as it is written by events.k8s.io."""
    causes = [*_of_both(document, "reportingController")]
    if old is None:
        causes += _of_newer(document)
    else:
        causes += _changed(document, old)
    if old is None or not same(document.get("series"), old.get("series")):
        causes += _of_series(document.get("series"))
    return Verdict(causes)


def _of_both(event: Document, reporter: str) -> Iterator[Cause]:
    about = at(event, "involvedObject", "namespace") or ""
    home = at(event, "metadata", "namespace") or ""
    is_newer = event.get("eventTime") is not None
    lives_well = home == about or (is_newer and about)
    if not lives_well and not (not about and home in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    if is_newer:
        yield from _report(event, reporter)


def _report(event: Document, reporter: str) -> Iterator[Cause]:
    """Who reports what was done, and why."""
    who = event.get("reportingComponent") or ""
    if not who:
        yield required(reporter)
    for fault in label_key_faults(who):
        yield invalid(reporter, who, fault)
    for field in ("reportingInstance", "action", "reason"):
        value = event.get(field) or ""
        if not value:
            yield required(field)
        if len(value.encode()) > _LONGEST:
            yield invalid(field, "", f"can have at most {_LONGEST} characters")
    if len((event.get("message") or "").encode()) > _LONGEST_NOTE:
        yield invalid("message", "", f"can have at most {_LONGEST_NOTE} characters")


def _of_newer(event: Document) -> Iterator[Cause]:
    if event.get("eventTime") is None:
        yield required("eventTime")
    if event.get("type") not in _TYPES:
        yield invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for field in _OLDER:
        if event.get(field):
            yield invalid(field, "", "needs to be unset")
    if any((event.get("source") or {}).values()):
        yield invalid("source", "", "needs to be unset")


def _of_series(series: Any) -> Iterator[Cause]:
    if series is None:
        return
    if (series.get("count") or 0) < _FEWEST:
        yield invalid("series.count", "", f"should be at least {_FEWEST}")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _changed(event: Document, old: Document) -> Iterator[Cause]:
    for field in _FIXED:
        value, known = event.get(field) or None, old.get(field) or None
        if not (same(value, known) or (field in _TIMES and _is_one_moment(value, known))):
            yield invalid(field, value, "field is immutable")


def _is_one_moment(value: Any, known: Any) -> bool:
    """Whether two times are the same to the microsecond, however they are written."""
    try:
        return bool(value and known) and parse_rfc3339(value) == parse_rfc3339(known)
    except ValueError:
        return False  # one from before times were checked
