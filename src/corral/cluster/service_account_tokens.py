"""Tokens controller: fills Secrets of type ``kubernetes.io/service-account-token``.

Charts create such Secrets for long-lived tokens of clients outside the cluster; an annotation names
the ServiceAccount. The token is bound to the Secret, and valid while that and the account exist.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Final

from lightkube.models.core_v1 import Secret, ServiceAccount

from corral.api.errors import NotFound
from corral.api.kinds.core.secret_types import ACCOUNT_NAME, ACCOUNT_TOKEN
from corral.api.names import subdomain_faults
from corral.api.object import Key
from corral.client.tokens import token_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.deletion import remove
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
SECONDS: Final = 1 << 32
"""Lifetime of a token: the longest that the TokenRequest API allows, 136 years."""


def controller(authority: Callable[[], str]) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller; ``authority`` returns the server's CA as PEM."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = SecretTokens(context, authority)
        return Controller("secret-tokens", loop.reconcile, queue=loop.queue, sources=loop.sources)

    return factory


class SecretTokens:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext, authority: Callable[[], str]) -> None:
        self.queue = WorkQueue[Key]()
        self.secrets = context.informers.of(Secret, fields=f"type={ACCOUNT_TOKEN}")
        self.accounts = context.informers.of(ServiceAccount)
        self.sources = (self.secrets, self.accounts)
        self._client = context.client
        self._authority = authority
        self.secrets.handle(self._secret_changed)
        self.accounts.handle(self._account_changed)

    async def reconcile(self, key: Key) -> None:
        """Fill a Secret, or delete it if its account does not exist."""
        secret = self.secrets.get(key)
        if secret is None or is_being_deleted(secret) or not _annotations(secret).get(ACCOUNT_NAME):
            return  # without an account name it is older than this controller, and a user's
        uid = await self._account(key.namespace, secret)
        if uid is None:
            await remove(self._client, Secret, key, uid_of(secret))
            return
        if secret.immutable:
            return  # no token can be put there
        present: Mapping[str, str] = secret.data or {}
        data = {"ca.crt": _encoded(self._authority()), "namespace": _encoded(key.namespace)}
        if not present.get("token"):
            data["token"] = _encoded(await self._token(key, secret))
        missing = {name: value for name, value in data.items() if present.get(name) != value}
        if missing or _annotations(secret).get(ACCOUNT_UID) != uid:
            metadata = {"uid": uid_of(secret), "annotations": {ACCOUNT_UID: uid}}
            await self._client.patch(Secret, key, {"metadata": metadata, "data": missing})

    async def _account(self, namespace: str, secret: Secret) -> str | None:
        """Return the uid of a Secret's account; None if it does not exist."""
        annotations = _annotations(secret)
        name = annotations.get(ACCOUNT_NAME, "")
        if subdomain_faults(name):
            return None  # an invalid name must not become part of a path
        account = self.accounts.get(Key(namespace, name))
        if account is None:  # the cache may have yet to show it
            try:
                account = await self._client.get(ServiceAccount, name, namespace)
            except NotFound:
                return None
        uid = uid_of(account)
        return uid if annotations.get(ACCOUNT_UID, uid) == uid else None

    async def _token(self, key: Key, secret: Secret) -> str:
        return await token_of(
            self._client,
            Key(key.namespace, _annotations(secret)[ACCOUNT_NAME]),
            kind="Secret",
            name=key.name,
            uid=uid_of(secret),
            seconds=SECONDS,
        )

    def _secret_changed(self, _old: Secret | None, new: Secret | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _account_changed(self, old: ServiceAccount | None, new: ServiceAccount | None) -> None:
        if (changed := new or old) is None:
            return
        account = key_of(changed)
        for secret in self.secrets.items():
            key = key_of(secret)
            if (key.namespace, _annotations(secret).get(ACCOUNT_NAME)) == account:
                self.queue.add(key)


def _annotations(secret: Secret) -> Mapping[str, str]:
    return (secret.metadata.annotations if secret.metadata else None) or {}


def _encoded(content: str) -> str:
    return base64.b64encode(content.encode()).decode()
