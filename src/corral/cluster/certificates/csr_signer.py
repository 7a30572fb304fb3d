"""Signs approved CertificateSigningRequests for client certificates.

It is kube-controller-manager's signer ``kubernetes.io/kube-apiserver-client``; requests to other
signers are left alone.
"""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from lightkube.models.certificates_v1 import CertificateSigningRequest

from corral.api.kinds.auth.certificate_signing_request import (
    APPROVED,
    CLIENT_SIGNER,
    DENIED,
    FAILED,
)
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

Sign = Callable[[bytes, int | None], bytes]
"""Signs a PEM request for a number of seconds; raises ValueError if it is invalid."""

_NEEDED = "client auth"
_ALLOWED = frozenset({_NEEDED, "digital signature", "key encipherment"})


def controller(sign: Sign) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller that signs."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = Signer(context, sign)
        return Controller(
            "certificates-signer", loop.reconcile, queue=loop.queue, sources=(loop.requests,)
        )

    return factory


class Signer:
    """Cache of the requests to the signer."""

    def __init__(self, context: ControllerContext, sign: Sign) -> None:
        self.queue = WorkQueue[Key]()
        self.requests = context.informers.of(
            CertificateSigningRequest, fields=f"spec.signerName={CLIENT_SIGNER}"
        )
        self._client = context.client
        self._sign = sign
        self.requests.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Sign an approved request, or record why it cannot be signed."""
        request = self.requests.get(key)
        if request is None or is_being_deleted(request) or not is_waiting(request):
            return
        updated = msgspec.to_builtins(request)
        try:
            require_usages(request.spec.usages or [])
            content = self._sign(
                base64.b64decode(request.spec.request), request.spec.expirationSeconds
            )
        except ValueError as error:
            updated["status"]["conditions"].append(_failure(str(error)))
        else:
            updated["status"]["certificate"] = base64.b64encode(content).decode()
        # A replace, guarded by the resource version: others may have denied it meanwhile.
        await self._client.replace(CertificateSigningRequest, updated, subresource="status")

    def _changed(
        self, _old: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None and is_waiting(new):
            self.queue.add(key_of(new))


def is_waiting(request: CertificateSigningRequest) -> bool:
    """Report whether a request is approved, and neither signed nor failed."""
    status: Any = request.status
    types = {each.type for each in (status and status.conditions) or ()}
    return APPROVED in types and not types & {DENIED, FAILED} and not status.certificate


def require_usages(usages: list[str]) -> None:
    """Raise ValueError unless the usages are those of a client certificate."""
    for usage in usages:
        if usage not in _ALLOWED:
            raise ValueError(f"invalid usage for client certificate: {usage}")
    if _NEEDED not in usages:
        raise ValueError(f"missing required usage for client certificate: {_NEEDED}")


def _failure(message: str) -> Document:
    return {
        "type": FAILED,
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": message,
    }
