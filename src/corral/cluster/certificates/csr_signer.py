"""Signs approved CertificateSigningRequests for client and kubelet serving certificates.

It is kube-controller-manager's csrsigning controller; requests to other signers are left alone.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from lightkube.models.certificates_v1 import CertificateSigningRequest

from corral.api.kinds.auth.certificate_signing_request import (
    APPROVED,
    DENIED,
    FAILED,
    KUBELET_SERVING_SIGNER,
)
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

Sign = Callable[[bytes, int | None], bytes]
"""Signs a PEM request for a number of seconds; raises ValueError if it is invalid."""

_CLIENT, _SERVER = "client auth", "server auth"
_KEY_USAGES = frozenset({"digital signature", "key encipherment"})


def controller(signers: Mapping[str, Sign]) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller that signs, by the names of its signers."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = Signer(context, signers)
        return Controller(
            "certificates-signer", loop.reconcile, queue=loop.queue, sources=(loop.requests,)
        )

    return factory


class Signer:
    """Cache of the requests to some signers."""

    def __init__(self, context: ControllerContext, signers: Mapping[str, Sign]) -> None:
        self.queue = WorkQueue[Key]()
        self.requests = context.informers.of(CertificateSigningRequest)
        self._client = context.client
        self._signers = signers
        self.requests.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Sign an approved request, or record why it cannot be signed."""
        request = self.requests.get(key)
        if request is None or is_being_deleted(request) or not is_waiting(request):
            return
        updated = msgspec.to_builtins(request)
        try:
            serving = request.spec.signerName == KUBELET_SERVING_SIGNER
            require_usages(request.spec.usages or [], serving=serving)
            content = self._signers[request.spec.signerName](
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
        if new is not None and new.spec.signerName in self._signers and is_waiting(new):
            self.queue.add(key_of(new))


def is_waiting(request: CertificateSigningRequest) -> bool:
    """Report whether a request is approved, and neither signed nor failed."""
    status: Any = request.status
    types = {each.type for each in (status and status.conditions) or ()}
    return APPROVED in types and not types & {DENIED, FAILED} and not status.certificate


def require_usages(usages: list[str], *, serving: bool = False) -> None:
    """Raise ValueError unless the usages are those of a client, or a serving, certificate."""
    needed, what = (_SERVER, "kubelet serving") if serving else (_CLIENT, "client")
    for usage in usages:
        if usage != needed and usage not in _KEY_USAGES:
            raise ValueError(f"invalid usage for {what} certificate: {usage}")
    if needed not in usages:
        raise ValueError(f"missing required usage for {what} certificate: {needed}")


def _failure(message: str) -> Document:
    return {
        "type": FAILED,
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": message,
    }
