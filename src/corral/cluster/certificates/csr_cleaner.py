"""Deletes old CertificateSigningRequests, as kube-controller-manager does.

Approved, denied and failed ones are kept for an hour, so that clients can fetch the certificate.
"""

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta

from lightkube.models.certificates_v1 import CertificateSigningRequest

from corral import pki
from corral.api.kinds.auth.certificate_signing_request import APPROVED, DENIED, FAILED
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

DECIDED = timedelta(hours=1)
"""Lifetime of requests that were denied, failed, or were signed."""
PENDING = timedelta(hours=24)
"""Lifetime of requests without a decision."""


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that deletes old requests."""
    loop = Cleaner(context)
    return Controller(
        "certificates-cleaner", loop.reconcile, queue=loop.queue, sources=(loop.requests,)
    )


class Cleaner:
    """Cache of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.requests = context.informers.of(CertificateSigningRequest)
        self._client = context.client
        self._clock = context.clock
        self.requests.handle(self._changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Delete a request that is due, else requeue it for then."""
        request = self.requests.get(key)
        if request is None or is_being_deleted(request):
            return None
        due = end_of(request)
        if due is None:
            return None
        left = (due - self._clock()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await remove(self._client, CertificateSigningRequest, key, uid_of(request))
        return None

    def _changed(
        self, _old: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None:
            self.queue.add(key_of(new))


def end_of(request: CertificateSigningRequest) -> datetime | None:
    """Return when a request is to be deleted; None while an approved one waits for its signer."""
    return min(_ends(request), default=None)


def _ends(request: CertificateSigningRequest) -> Iterator[datetime]:
    conditions = (request.status and request.status.conditions) or []
    if not conditions and request.metadata and request.metadata.creationTimestamp:
        yield request.metadata.creationTimestamp + PENDING
    certificate = (request.status and request.status.certificate) or ""
    for condition in conditions:
        decided = condition.type in (DENIED, FAILED) or (
            condition.type == APPROVED and bool(certificate)
        )
        if decided and condition.lastUpdateTime:
            yield condition.lastUpdateTime + DECIDED
    if certificate and (end := pki.certificate_end(base64.b64decode(certificate))):
        yield end
