"""Signs approved requests for certificates by which users are known to the API.

It is kube-controller-manager's part for the signer ``kubernetes.io/kube-apiserver-client``.
Requests to other signers are left to whoever runs these.
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
"""Makes a certificate of a request, for so many seconds; raises ValueError where it cannot."""

_NEEDED = "client auth"
_ALLOWED = frozenset({_NEEDED, "digital signature", "key encipherment"})


def controller(sign: Sign) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the controller that signs."""

    def make(context: ControllerContext) -> Controller[Key]:
        loop = Signer(context, sign)
        return Controller(
            "certificates-signer", loop.reconcile, queue=loop.queue, sources=(loop.requests,)
        )

    return make


class Signer:
    """The requests to the signer."""

    def __init__(self, context: ControllerContext, sign: Sign) -> None:
        self.queue = WorkQueue[Key]()
        self.requests = context.informers.of(
            CertificateSigningRequest, fields=f"spec.signerName={CLIENT_SIGNER}"
        )
        self._client = context.client
        self._sign = sign
        self.requests.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Give an approved request its certificate, or tell why it gets none."""
        request = self.requests.get(key)
        if request is None or is_being_deleted(request) or not is_waiting(request):
            return
        wanted = msgspec.to_builtins(request)
        try:
            require_usages(request.spec.usages or [])
            content = self._sign(
                base64.b64decode(request.spec.request), request.spec.expirationSeconds
            )
        except ValueError as error:
            wanted["status"]["conditions"].append(_failure(str(error)))
        else:
            wanted["status"]["certificate"] = base64.b64encode(content).decode()
        # whole, with its version: what was decided meanwhile by others is looked at anew
        await self._client.replace(CertificateSigningRequest, wanted, subresource="status")

    def _changed(
        self, _old: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None and is_waiting(new):
            self.queue.add(key_of(new))


def is_waiting(request: CertificateSigningRequest) -> bool:
    """Whether a request is approved, and its signer has not answered."""
    status: Any = request.status
    has = {each.type for each in (status and status.conditions) or ()}
    return APPROVED in has and not has & {DENIED, FAILED} and not status.certificate


def require_usages(usages: list[str]) -> None:
    """Refuse what a client's certificate is not for.  Raises ValueError."""
    for usage in usages:
        if usage not in _ALLOWED:
            raise ValueError(f"invalid usage for client certificate: {usage}")
    if _NEEDED not in usages:
        raise ValueError(f"missing required usage for client certificate: {_NEEDED}")


def _failure(why: str) -> Document:
    return {"type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": why}
