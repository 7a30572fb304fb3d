"""Query parameters of operations, by verb."""

from typing import Final, NamedTuple

from corral.api.object import Document


class Parameter(NamedTuple):
    """A parameter of an operation."""

    name: str
    type: str
    description: str

    def document(self, where: str = "query") -> Document:
        document: Document = {
            "name": self.name,
            "in": where,
            "description": self.description,
            "schema": {"type": self.type, "uniqueItems": True},
        }
        return document | ({"required": True} if where == "path" else {})


PRETTY: Final = Parameter("pretty", "string", "Ignored: answers are compact.")
_DRY_RUN = Parameter("dryRun", "string", "All: process the request, but do not store the result.")
WRITES: Final = (
    _DRY_RUN,
    Parameter(
        "fieldManager",
        "string",
        "The name of the manager of the fields that this request sets. At most 128 printable "
        "characters.",
    ),
    Parameter(
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields: Ignore drops them, Warn drops them with a "
        "warning, Strict refuses the request.",
    ),
)
PATCHES: Final = (
    *WRITES,
    Parameter(
        "force",
        "boolean",
        "Take over fields of other managers that the applied configuration sets. For apply patches "
        "only.",
    ),
)
DELETES: Final = (
    _DRY_RUN,
    Parameter(
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object is deleted; 0 deletes it at once. The default is that of the "
        "kind.",
    ),
    Parameter(
        "orphanDependents",
        "boolean",
        "Whether dependents stay. Deprecated: use propagationPolicy; both together are refused.",
    ),
    Parameter(
        "propagationPolicy",
        "string",
        "Deletion of dependents: Orphan leaves them, Background deletes them after the object, "
        "Foreground before it.",
    ),
)
_SELECTS = (
    Parameter("fieldSelector", "string", "Select objects by the values of fields."),
    Parameter("labelSelector", "string", "Select objects by labels."),
)
_PAGES = (
    Parameter("continue", "string", "The continue token of the previous page of this list."),
    Parameter("limit", "integer", "The maximum number of objects of a page."),
)
_RECENT = (
    Parameter(
        "resourceVersion",
        "string",
        "The version that a response must be at least as new as; where a watch begins.",
    ),
    Parameter(
        "resourceVersionMatch",
        "string",
        "How resourceVersion applies to a list: Exact, or NotOlderThan.",
    ),
)
GETS: Final = (_RECENT[0],)
LISTS: Final = (
    Parameter(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may send BOOKMARK events, which have the current resourceVersion.",
    ),
    *_SELECTS,
    *_PAGES,
    *_RECENT,
    Parameter(
        "sendInitialEvents",
        "boolean",
        "Whether a watch begins with all existing objects, followed by a BOOKMARK.",
    ),
    Parameter("timeoutSeconds", "integer", "Seconds until a watch ends."),
    Parameter("watch", "boolean", "Send changes as a stream of events, instead of a list."),
)
DELETES_MANY: Final = (*DELETES, *_SELECTS, *_PAGES, *_RECENT)
PATH_PARAMETERS: Final = {
    "name": "the name of the {kind}",
    "namespace": "the namespace of the object",
    "path": "the path of the request to the kubelet",
    "port": "a port of the machine",
    "protocol": "tcp, or udp",
}
"""Descriptions of path parameters, by name."""
