"""Revocation of client certificates before they expire.

The ConfigMap ``revoked-certificates`` in ``kube-system`` has a time for each user: certificates
issued to the user until then are rejected.  ``corral kubeconfig --revoke`` writes it; as an object
it is part of backups, and RBAC says who may change it.
"""

import json
from collections.abc import Mapping

import structlog

from corral import pki
from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.object import Document
from corral.api.request import Certificate
from corral.api.revocation import MAP, USERS
from corral.api.time import parse_rfc3339
from corral.store import Record, Store

log = structlog.get_logger()


class Revocations:
    """The revocations of a store, parsed once per change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: Record | None = None
        self._until: Mapping[str, float] | None = {}

    def covers(self, certificate: Certificate) -> bool:
        """Return whether a certificate is revoked: all are if the ConfigMap is invalid."""
        record = self._store.get("configmaps", MAP)
        if record is not self._read:
            self._read, self._until = record, _until(record)
        if self._until is None:
            return True
        return issued(certificate) <= self._until.get(certificate.name, 0)


def issued(certificate: Certificate) -> float:
    """Return when a certificate was issued: certificates are valid from some time before."""
    return certificate.begins + pki.SKEW.total_seconds()


def merge(document: Document, earlier: Document) -> list[str]:
    """Merge the revocations of another ConfigMap into one; return users whose time changed.

    The later of two times counts.  An invalid ConfigMap revokes all certificates, and so does the
    result of merging it.
    """
    current, others = _times(document), _times(earlier)
    if current is None:
        return []
    if others is None:
        document["data"] = earlier.get("data")
        return ["everybody"]
    added = [user for user, time in others.items() if _seconds(time) > _seconds(current.get(user))]
    merged = current | {user: others[user] for user in added}
    document["data"] = {**(document.get("data") or {}), USERS: json.dumps(merged)}
    return sorted(added)


def _seconds(time: str | None) -> float:
    return 0 if time is None else parse_rfc3339(time).timestamp()


def _times(document: Document) -> dict[str, str] | None:
    """Return the times by user, as written; None for an invalid ConfigMap."""
    try:
        times = _read_times(document)
        for time in times.values():
            parse_rfc3339(time)
    except (ValueError, TypeError, AttributeError):
        return None
    return times


def _read_times(document: Document) -> dict[str, str]:
    """Read the times by user.  Raises ValueError, TypeError and AttributeError."""
    return decode_as(at(document, "data", USERS) or "{}", dict[str, str])


def _until(record: Record | None) -> Mapping[str, float] | None:
    """Return the times by user, in seconds since 1970; None for an invalid ConfigMap."""
    if record is None:
        return {}
    try:
        times = _read_times(record.document())
        return {user: parse_rfc3339(time).timestamp() for user, time in times.items()}
    except (ValueError, TypeError) as error:
        log.warning(
            "all certificates rejected: invalid revocations", map=str(MAP), error=str(error)
        )
        return None
