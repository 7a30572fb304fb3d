"""Certificates that are not good any more, though their time is not up.

The ConfigMap ``revoked-certificates`` in ``kube-system`` says of which users: what was issued to
them until then is refused.  ``corral kubeconfig --revoke`` writes it; it is an object as all are,
so it is in backups, and who may change it is a matter of roles.
"""

from collections.abc import Mapping

import msgspec
import structlog

from corral import pki
from corral.api.kind import at
from corral.api.object import Key
from corral.api.time import parse_rfc3339
from corral.api.wire import Certificate
from corral.store import Record, Store

MAP = Key("kube-system", "revoked-certificates")
USERS = "users.json"
"""The map's entry: a JSON object from users' names to times in RFC 3339."""

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


def _until(record: Record | None) -> Mapping[str, float] | None:
    """Until when certificates are revoked, by user; None for a map that says something else."""
    if record is None:
        return {}
    try:
        told = msgspec.json.decode(
            at(record.document(), "data", USERS) or "{}", type=dict[str, str]
        )
        return {user: parse_rfc3339(time).timestamp() for user, time in told.items()}
    except (ValueError, TypeError) as error:
        log.warning(
            "no certificate is good: revocations cannot be read", map=str(MAP), error=str(error)
        )
        return None
