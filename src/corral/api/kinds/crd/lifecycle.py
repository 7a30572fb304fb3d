"""Deletion and update of CustomResourceDefinitions."""

from collections.abc import Iterator

from corral.api.conditions import is_condition_true, set_condition
from corral.api.errors import Cause, Details, Forbidden
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.kinds.crd.well_known import (
    CLEANUP,
    ESTABLISHED,
    GROUP,
    PLURAL,
    RESOURCE,
    TERMINATING,
    is_built_in,
)
from corral.api.object import Document

_IMMUTABLE = "field is immutable"


def begin_deletion(document: Document, now: str) -> None:
    """Add a finalizer, so that objects are deleted first.  Raises Forbidden if it is built in."""
    metadata = document["metadata"]
    if is_built_in(document):
        raise Forbidden(
            f'{RESOURCE} "{metadata["name"]}" is forbidden: it defines a built-in kind of corral, '
            "and cannot be deleted",
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


def check_update(document: Document, old: Document) -> Iterator[Cause]:
    """Check that an update keeps the names under which objects are stored."""
    immutable = [("group",), ("names", "plural")]
    if is_condition_true(old, ESTABLISHED):
        immutable = [("scope",), ("names", "kind"), *immutable]
    for path in immutable:
        value = at(document, "spec", *path)
        if value != at(old, "spec", *path):
            yield invalid(".".join(("spec", *path)), value, _IMMUTABLE)
    versions = [version["name"] for version in document["spec"]["versions"]]
    stored = at(document, "status", "storedVersions") or []
    for index, name in enumerate(stored):
        if name not in versions:
            path_of = f"status.storedVersions[{index}]"
            fault = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(path_of, name, fault)
