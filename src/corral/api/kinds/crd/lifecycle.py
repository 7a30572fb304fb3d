"""What becomes of a definition over its life, and what of it can be changed."""

from collections.abc import Iterator

from corral.api.conditions import set_condition
from corral.api.errors import Cause, Details, Forbidden
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.kinds.crd.well_known import (
    CLEANUP,
    ESTABLISHED,
    GROUP,
    PLURAL,
    STORED,
    TERMINATING,
    holds,
    is_built_in,
)
from corral.api.object import Document

_IMMUTABLE = "field is immutable"


def begin_deletion(document: Document, now: str) -> None:
    """Its objects go first: a finalizer keeps it until they are gone.  Raises Forbidden."""
    metadata = document["metadata"]
    if is_built_in(document):
        raise Forbidden(
            f'{STORED} "{metadata["name"]}" is forbidden: it tells of a kind that corral has by '
            "itself, and cannot be deleted",
            details=Details(name=metadata["name"], group=GROUP, kind=PLURAL),
        )
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    if metadata.get("deletionTimestamp"):
        return
    status = document.setdefault("status", {})
    status["conditions"] = set_condition(
        status.get("conditions"),
        TERMINATING,
        "True",
        reason="InstanceDeletionPending",
        message="CustomResourceDefinition marked for deletion; CustomResource deletion will begin "
        "soon",
        now=now,
    )


def check(document: Document, old: Document) -> Iterator[Cause]:
    """What an update may not change: what its objects are stored under."""
    fixed = [("group",), ("names", "plural")]
    if holds(old, ESTABLISHED):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for path in fixed:
        value = at(document, "spec", *path)
        if value != at(old, "spec", *path):
            yield invalid(".".join(("spec", *path)), value, _IMMUTABLE)
    known = [version["name"] for version in document["spec"]["versions"]]
    stored = at(document, "status", "storedVersions") or []
    for index, name in enumerate(stored):
        if name not in known:
            path_of = f"status.storedVersions[{index}]"
            fault = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(path_of, name, fault)
