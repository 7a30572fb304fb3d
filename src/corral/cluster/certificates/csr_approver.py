"""Approves the certificate requests of nodes: of new ones by a token, of joined ones by their own.

It stands in for kube-controller-manager's csrapproving controller, which asks by a
SubjectAccessReview whether the requestor may have a node's certificate.  Unlike Kubernetes, a
bootstrap token does not get the certificate of a node that exists, and serving certificates are
approved, too: for the addresses that the node's own object names.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from lightkube.models.authorization_v1 import SubjectAccessReview
from lightkube.models.certificates_v1 import CertificateSigningRequest
from lightkube.models.core_v1 import Node

from corral import pki
from corral.api.kinds.auth.bootstrap_token import USER_PREFIX
from corral.api.kinds.auth.certificate_signing_request import (
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    NODE_GROUP,
    NODE_USER_PREFIX,
)
from corral.api.kinds.core.node_addresses import internal_ips
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

_SIGNERS: Final = frozenset({KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER})
_RESERVED_NAMES: Final = frozenset({"kubernetes", "localhost"})
"""First labels of the names by which clients find the API server: serving certificates name their
node, and must not pass for the server's."""
_ADDRESS_SECONDS: Final = 1.0
"""Delay after which a serving request is looked at again whose addresses its Node lacks."""


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that approves."""
    loop = Approver(context)
    sources = (loop.requests, loop.nodes)
    return Controller("certificates-approver", loop.reconcile, queue=loop.queue, sources=sources)


class Approver:
    """The requests of nodes for client and serving certificates."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.requests = context.informers.of(CertificateSigningRequest)
        self.nodes = context.informers.of(Node)
        self._client = context.client
        self.requests.handle(self._changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Approve or deny a request; leave the ones that no rule covers to an administrator."""
        request = self.requests.get(key)
        if request is None or is_being_deleted(request) or not is_pending(request):
            return None
        try:
            requested = pki.read_request(base64.b64decode(request.spec.request))
        except ValueError:
            return None  # the signer, or an administrator, will say what is wrong with it
        if request.spec.signerName == KUBELET_SERVING_SIGNER:
            return await self._serving(request, requested)
        if node_of(requested) and not requested.hosts and not requested.other_names:
            await self._client_certificate(request, requested)
        return None

    async def _client_certificate(
        self, request: CertificateSigningRequest, requested: pki.CertificateRequest
    ) -> None:
        user = request.spec.username or ""
        own = user == requested.name
        if not await self._may(request, "selfnodeclient" if own else "nodeclient"):
            return
        name = node_of(requested)
        if name.split(".")[0] in _RESERVED_NAMES:
            text = f'"{name}" is a name of the API server. Join under another name'
            await self._decide(request, DENIED, "NameReserved", text)
            return
        if user.startswith(USER_PREFIX) and self.nodes.get(Key("", name)) is not None:
            text = (
                f'node "{name}" exists: a token does not get the certificate of a node that is '
                f"there. Delete the Node first, or join under another name"
            )
            await self._decide(request, DENIED, "NodeExists", text)
            return
        kind = "self kubelet" if own else "kubelet"
        text = f"Auto approving {kind} client certificate after SubjectAccessReview."
        await self._decide(request, APPROVED, "AutoApproved", text)

    async def _serving(
        self, request: CertificateSigningRequest, requested: pki.CertificateRequest
    ) -> Result | None:
        name = node_of(requested)
        if not name or request.spec.username != requested.name or requested.other_names:
            return None
        node = self.nodes.get(Key("", name))
        if set(requested.hosts) <= {name, *addresses_of(node)}:
            text = "Auto approving kubelet serving certificate for the addresses of its Node."
            await self._decide(request, APPROVED, "AutoApproved", text)
            return None
        return Result(requeue_after=_ADDRESS_SECONDS)  # the Node may be on its way

    async def _may(self, request: CertificateSigningRequest, subresource: str) -> bool:
        """Report whether the requestor may create this subresource of certificate requests."""
        spec = request.spec
        review: Document = {
            "metadata": {},
            "spec": {
                "user": spec.username,
                "uid": spec.uid or "",
                "groups": spec.groups or [],
                "extra": spec.extra or {},
                "resourceAttributes": {
                    "group": GROUP,
                    "resource": "certificatesigningrequests",
                    "subresource": subresource,
                    "verb": "create",
                    "version": "*",
                },
            },
        }
        answer = await self._client.create(SubjectAccessReview, review)
        return answer.status is not None and bool(answer.status.allowed)

    async def _decide(
        self, request: CertificateSigningRequest, decision: str, reason: str, message: str
    ) -> None:
        document = msgspec.to_builtins(request)
        status = document.setdefault("status", None) or {}
        condition = {"type": decision, "status": "True", "reason": reason, "message": message}
        status["conditions"] = [*(status.get("conditions") or []), condition]
        document["status"] = status
        await self._client.replace(CertificateSigningRequest, document, subresource="approval")

    def _changed(
        self, _old: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None and new.spec.signerName in _SIGNERS and is_pending(new):
            self.queue.add(key_of(new))


def is_pending(request: CertificateSigningRequest) -> bool:
    """Report whether nobody has decided on a request."""
    status: Any = request.status
    decided = {each.type for each in (status and status.conditions) or ()}
    return not decided & {APPROVED, DENIED, FAILED}


def node_of(requested: pki.CertificateRequest) -> str:
    """Return the name of the node whose identity a request asks for; empty if it is no node's."""
    if requested.groups != (NODE_GROUP,):
        return ""
    name = requested.name.removeprefix(NODE_USER_PREFIX)
    return name if name != requested.name else ""


def addresses_of(node: Node | None) -> Iterable[str]:
    """Return a Node's InternalIPs.

    A node writes its addresses itself, and NodeRestriction sees to it that no two have the same
    InternalIP.  Of other types nobody does: as its ExternalIP or Hostname a node might name the
    address of another one, or the API server's name.
    """
    return internal_ips(node) if node is not None else ()
