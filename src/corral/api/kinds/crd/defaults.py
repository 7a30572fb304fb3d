"""What a definition leaves out, as apiextensions/v1 completes it."""

from typing import Final

from corral.api.kind import at
from corral.api.object import Document

AGE_COLUMN: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def begin(document: Document) -> None:
    """A new definition has no status but the version in which objects will be stored."""
    document["status"] = {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(document),
    }


def complete(document: Document) -> None:
    """Names, conversion, and the versions in which objects may lie in the store."""
    spec = document["spec"]
    names = spec["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec["versions"]:
        if version.get("additionalPrinterColumns") == []:
            del version["additionalPrinterColumns"]
    status = document.get("status")
    if status is None:
        return
    stored = status.get("storedVersions") or []
    missing = [name for name in _storage_versions(document) if name not in stored]
    if missing:
        status["storedVersions"] = [*stored, *missing]


def _storage_versions(document: Document) -> list[str]:
    versions = at(document, "spec", "versions") or ()
    return [version["name"] for version in versions if version["storage"]]
