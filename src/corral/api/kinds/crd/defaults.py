"""Defaults of CustomResourceDefinitions (apiextensions/v1)."""

from typing import Final

from corral.api.kind import at
from corral.api.object import Document

AGE_COLUMN: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def default_status(document: Document) -> None:
    """Set the status of a new definition: nothing but its storage version."""
    document["status"] = {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(document),
    }


def default_definition(document: Document) -> None:
    """Default names and conversion, and add the storage version to ``storedVersions``."""
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
