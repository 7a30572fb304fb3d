"""Authentication by bootstrap tokens: new nodes request their first certificate with one."""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime

from corral.api.kinds.auth import bootstrap_token
from corral.api.kinds.auth.bootstrap_token import GROUP, NAMESPACE, PREFIX, USER_PREFIX
from corral.api.object import Key
from corral.api.request import User
from corral.store import Store


class BootstrapTokens:
    """The bootstrap tokens of a store, read at each use: a deleted Secret ends its token."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def user(self, token: str) -> User | None:
        """Return the user of a token: ``system:bootstrap:ID``; None for an invalid one."""
        found = self._find(token)
        if found is None:
            return None
        groups = dict.fromkeys((GROUP, *found.groups, "system:authenticated"))
        return User(name=f"{USER_PREFIX}{found.id}", groups=tuple(groups))

    def ends(self, token: str) -> float | None:
        """Return when a token expires, in seconds since 1970; None if never, or invalid."""
        found = self._find(token)
        if found is None or found.expiration is None:
            return None
        return found.expiration.timestamp()

    def _find(self, token: str) -> bootstrap_token.BootstrapToken | None:
        parsed = bootstrap_token.parse(token)
        if parsed is None:
            return None
        record = self._store.latest("secrets", Key(NAMESPACE, f"{PREFIX}{parsed[0]}"))
        document = record.document() if record is not None else {}
        if document.get("type") != bootstrap_token.TYPE or document["metadata"].get(
            "deletionTimestamp"
        ):
            return None
        stored = bootstrap_token.read(document["metadata"]["name"], document.get("data"))
        if (
            stored is None
            or not stored.authenticates
            or not hmac.compare_digest(stored.secret, parsed[1])
            or stored.has_expired(datetime.fromtimestamp(self._now(), UTC))
        ):
            return None
        return stored
