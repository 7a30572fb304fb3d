"""Removes expired bootstrap tokens (kube-controller-manager's tokencleaner)."""

from datetime import datetime

from lightkube.models.core_v1 import Secret

from corral.api.kinds.auth import bootstrap_token
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that removes them."""
    queue = WorkQueue[Key]()
    secrets = context.informers.of(Secret, fields=f"type={bootstrap_token.TYPE}")

    async def reconcile(key: Key) -> Result | None:
        secret = secrets.get(key)
        if secret is None or is_being_deleted(secret) or (end := expiration_of(secret)) is None:
            return None
        left = (end - context.clock()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await remove(context.client, Secret, key, uid_of(secret))
        return None

    def changed(_old: Secret | None, new: Secret | None) -> None:
        if new is not None and key_of(new).namespace == bootstrap_token.NAMESPACE:
            queue.add(key_of(new))

    secrets.handle(changed)
    return Controller("bootstrap-tokens", reconcile, queue=queue, sources=(secrets,))


def expiration_of(secret: Secret) -> datetime | None:
    """Return when the token of a Secret expires; None if never, or if it holds no token."""
    token = bootstrap_token.read(key_of(secret).name, secret.data)
    return token.expiration if token is not None else None
