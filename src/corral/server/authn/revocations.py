"""Certificates that are not good any more, though their time is not up.

The ConfigMap ``revoked-certificates`` in ``kube-system`` says of which users: what was issued to
them until then is refused.  ``corral kubeconfig --revoke`` writes it; it is an object as all are,
so it is in backups, and who may change it is a matter of roles.
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
    """What the store says of revoked certificates, read again only when it has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: Record | None = None
        self._until: Mapping[str, float] | None = {}

    def covers(self, certificate: Certificate) -> bool:
        """Whether a certificate was revoked; each is where the map cannot be read."""
        record = self._store.get("configmaps", MAP)
        if record is not self._read:
            self._read, self._until = record, _until(record)
        if self._until is None:
            return True
        return issued(certificate) <= self._until.get(certificate.name, 0)


def issued(certificate: Certificate) -> float:
    """When the certificate was made: a while after it begins to be good."""
    return certificate.begins + pki.SKEW.total_seconds()


def united(document: Document, earlier: Document) -> list[str]:
    """Put into one map what another says, too; the users who are refused by more than before.

    Of two times the later one counts.  One that cannot be read lets nobody in, and nor does what
    comes of it.
    """
    known, more = _times(document), _times(earlier)
    if known is None:
        return []
    if more is None:
        document["data"] = earlier.get("data")
        return ["everybody"]
    added = [user for user, time in more.items() if _seconds(time) > _seconds(known.get(user))]
    told = known | {user: more[user] for user in added}
    document["data"] = {**(document.get("data") or {}), USERS: json.dumps(told)}
    return sorted(added)


def _seconds(time: str | None) -> float:
    return 0 if time is None else parse_rfc3339(time).timestamp()


def _times(document: Document) -> dict[str, str] | None:
    """The times by user, as they are told; None for a map that says something else."""
    try:
        told = _told(document)
        for time in told.values():
            parse_rfc3339(time)
    except (ValueError, TypeError, AttributeError):
        return None
    return told


def _told(document: Document) -> dict[str, str]:
    """What a map says.  Raises ValueError, TypeError and AttributeError."""
    return decode_as(at(document, "data", USERS) or "{}", dict[str, str])


def _until(record: Record | None) -> Mapping[str, float] | None:
    """Until when certificates are revoked, by user; None for a map that says something else."""
    if record is None:
        return {}
    try:
        told = _told(record.document())
        return {user: parse_rfc3339(time).timestamp() for user, time in told.items()}
    except (ValueError, TypeError) as error:
        log.warning(
            "no certificate is good: revocations cannot be read", map=str(MAP), error=str(error)
        )
        return None
