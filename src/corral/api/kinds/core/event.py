"""Events, which are served in two groups: core and events.k8s.io.

They are stored in the core form; ``events.k8s.io`` serves the same objects with other field names
(see k8s.io/api/events/v1).
"""

from collections.abc import Callable, Mapping

from lightkube.models.core_v1 import Event
from lightkube.models.events_v1 import Event as EventsEvent

from corral.api.kind import Column, Version, at
from corral.api.kinds.columns import field, text, value
from corral.api.kinds.core import event_validation
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

# events.k8s.io/v1 field, core/v1 field
_RENAMED = (
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def to_core(document: Document) -> None:
    """Convert an events.k8s.io document to the core form, in place."""
    for theirs, core in _RENAMED:
        if theirs in document:
            document[core] = document.pop(theirs)
    document.setdefault("involvedObject", {})


def from_core(document: Document) -> None:
    """Convert a core document to the events.k8s.io form, in place."""
    for theirs, core in _RENAMED:
        if core in document:
            document[theirs] = document.pop(core)
    document.setdefault("eventTime", None)  # the field is required there, and may be null


def _first_seen(document: Document) -> str | None:
    return document.get("firstTimestamp") or document.get("eventTime")


def _last_seen(document: Document) -> str | None:
    observed: str | None = at(document, "series", "lastObservedTime")
    return observed or document.get("lastTimestamp") or _first_seen(document)


def _count(document: Document) -> int:
    return at(document, "series", "count") or document.get("count") or 1


def _object(document: Document) -> str:
    reference = document.get("involvedObject") or {}
    kind = str(reference.get("kind") or "").lower()
    return f"{kind}/{reference['name']}" if reference.get("name") else kind


def _component(document: Document) -> str:
    return at(document, "source", "component") or document.get("reportingComponent") or ""


def _source(document: Document) -> str:
    host = at(document, "source", "host") or document.get("reportingInstance")
    return f"{_component(document)}, {host}" if host else _component(document)


COLUMNS = (
    Column(name="Last Seen", type="date", cell=_last_seen, description="when it last happened"),
    field("Type", "type", description="Normal or Warning"),
    field("Reason", "reason", description="what happened, in one word"),
    Column(name="Object", cell=_object, description="the object that it is about"),
    field(
        "Subobject", "involvedObject", "fieldPath", priority=1, description="the part of the object"
    ),
    Column(name="Source", cell=_source, priority=1, description="the component that reported it"),
    Column(
        name="Message",
        cell=lambda document: str(document.get("message") or "").strip(),
        description="what happened",
    ),
    Column(
        name="First Seen",
        type="date",
        cell=_first_seen,
        priority=1,
        description="when it first happened",
    ),
    Column(
        name="Count",
        type="integer",
        cell=_count,
        priority=1,
        description="how often it happened",
    ),
    Column(
        name="Name",
        cell=value("metadata", "name"),
        format="name",
        priority=1,
        description="the event's own name",
    ),
)


def _selectable(prefix: str, component: str) -> Mapping[str, Callable[[Document], str]]:
    parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {f"{prefix}.{part}": text("involvedObject", part) for part in parts} | {
        "reason": text("reason"),
        "type": text("type"),
        "source": _component,
        component: text("reportingComponent"),
    }


EVENT = kubernetes_kind(
    group="",
    plural="events",
    short=("ev",),
    view=Event,
    status=False,
    name_first=False,
    columns=COLUMNS,
    selectable=_selectable("involvedObject", "reportingComponent"),
    validate=event_validation.validate,
)
EVENTS_EVENT = kubernetes_kind(
    group="events.k8s.io",
    plural="events",
    short=("ev",),
    versions=(Version(name="v1", view=EventsEvent, read=to_core, write=from_core),),
    view=EventsEvent,
    status=False,
    name_first=False,
    columns=COLUMNS,
    selectable=_selectable("regarding", "reportingController"),
    validate=event_validation.validate_newer,
    stored_as=("", "events"),
)

KINDS = (EVENT, EVENTS_EVENT)
