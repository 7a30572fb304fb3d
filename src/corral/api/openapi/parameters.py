"""The query parameters of operations, by what is done."""

from typing import Final, NamedTuple

from corral.api.object import Document


class Parameter(NamedTuple):
    """Something that a query may say."""

    name: str
    type: str
    about: str

    def document(self, where: str = "query") -> Document:
        document: Document = {
            "name": self.name,
            "in": where,
            "description": self.about,
            "schema": {"type": self.type, "uniqueItems": True},
        }
        return document | ({"required": True} if where == "path" else {})


PRETTY: Final = Parameter("pretty", "string", "Ignored: answers are compact.")
_DRY_RUN = Parameter("dryRun", "string", "All: do everything but keep it.")
WRITES: Final = (
    _DRY_RUN,
    Parameter(
        "fieldManager",
        "string",
        "Who makes this change; the fields that it sets are theirs. At most 128 printable letters.",
    ),
    Parameter(
        "fieldValidation",
        "string",
        "What to do about fields that the schema does not know, or that stand twice: Ignore drops "
        "them, Warn tells them too, Strict refuses the request.",
    ),
)
PATCHES: Final = (
    *WRITES,
    Parameter(
        "force",
        "boolean",
        "Take over fields that are others' where an applied configuration sets them. Only apply "
        "patches may say so.",
    ),
)
DELETES: Final = (
    _DRY_RUN,
    Parameter(
        "gracePeriodSeconds",
        "integer",
        "Seconds that the object has to end; 0 deletes it at once. Without it the kind's own time "
        "is given.",
    ),
    Parameter(
        "orphanDependents",
        "boolean",
        "Whether dependents stay. Deprecated: see propagationPolicy, which may not be given too.",
    ),
    Parameter(
        "propagationPolicy",
        "string",
        "What becomes of dependents: Orphan leaves them, Background deletes them after the object, "
        "Foreground before it.",
    ),
)
_SELECTS = (
    Parameter("fieldSelector", "string", "Which objects, by the values of some of their fields."),
    Parameter("labelSelector", "string", "Which objects, by their labels."),
)
_PAGES = (
    Parameter("continue", "string", "Where the last page of this list ended, as it told."),
    Parameter("limit", "integer", "How many objects a page has at most."),
)
_RECENT = (
    Parameter(
        "resourceVersion",
        "string",
        "How recent the answer has to be; where a watch is to begin.",
    ),
    Parameter(
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: Exact, or NotOlderThan.",
    ),
)
GETS: Final = (_RECENT[0],)
LISTS: Final = (
    Parameter(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may tell how far it has come (BOOKMARK) where nothing has changed.",
    ),
    *_SELECTS,
    *_PAGES,
    *_RECENT,
    Parameter(
        "sendInitialEvents",
        "boolean",
        "Whether a watch begins with everything that there is, and tells when that is over.",
    ),
    Parameter("timeoutSeconds", "integer", "Seconds until a watch ends."),
    Parameter(
        "watch", "boolean", "Tell changes as they come, one event a line, instead of a list."
    ),
)
DELETES_MANY: Final = (*DELETES, *_SELECTS, *_PAGES, *_RECENT)
VARYING: Final = {
    "name": "the name of the {kind}",
    "namespace": "the namespace of the object",
    "path": "what is asked of the node's agent",
    "port": "a port of the machine",
    "protocol": "tcp, or udp",
}
"""What parts of paths are, by the name that stands in braces."""
