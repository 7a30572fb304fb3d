"""Requests for certificates: whose they are, who may approve and sign them, and by which door.

As Kubernetes has it, rights to a request are not enough: who approves it, or signs it, needs that
verb on its signer, too (``signers`` of certificates.k8s.io, by the signer's name or its domain).
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from corral import pki
from corral.api.errors import BadRequest, Forbidden
from corral.api.kind import at
from corral.api.kinds.auth.certificate_signing_request import (
    APPROVED,
    CLIENT_SIGNER,
    DENIED,
    GROUP,
    SIGNING_REQUEST,
    certificate,
    change_causes,
    conditions,
)
from corral.api.kinds.causes import invalid
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.server.authn.authenticator import ADMINISTRATORS
from corral.server.authn.token_review import user_info
from corral.server.authz import Authorizer
from corral.server.authz.attributes import Attributes
from corral.server.request.call import Call, Guard, Prepare, forbidden, storage
from corral.server.strategy.validation import Allocate

APPROVAL: Final = "approval"
_STORED: Final = storage(SIGNING_REQUEST)
_RIGHTS: Final = {APPROVAL: "approve", "status": "sign"}


class Signing:
    """What the server does with requests for certificates.  ``now`` is seconds since 1970."""

    def __init__(self, authorizer: Authorizer, now: Callable[[], float]) -> None:
        self._authorizer = authorizer
        self._now = now

    def preparers(self) -> dict[str, Prepare]:
        return {_STORED: self._prepare}

    def checks(self) -> dict[str, Allocate]:
        return {_STORED: _check_request}

    def guards(self) -> dict[str, Guard]:
        return {_STORED: self._guard}

    def _prepare(self, call: Call, document: Document, old: Document | None) -> None:
        """A new request is its sender's; later nothing changes but what its doors are for."""
        if old is None:
            _claim(call, document)
            return
        document["spec"] = old["spec"]
        if call.subresource:
            _settle(document, old, call.subresource, rfc3339(self._now()))

    def _guard(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Forbidden, and Invalid for a change that its door is not for."""
        if old is None:
            _refuse_administrators(call, document)
            return
        causes = list(change_causes(document, old, door=call.subresource))
        given = certificate(document)
        if given != certificate(old) and (fault := pki.certificate_fault(_bytes(given))):
            causes.append(invalid("status.certificate", "<certificate data>", fault))
        if causes:
            raise call.kind.invalid(call.name, causes)
        if call.subresource == APPROVAL or _is_signed(document, old):
            self._require(call, document, _RIGHTS.get(call.subresource))

    def _require(self, call: Call, document: Document, verb: str | None) -> None:
        signer = document["spec"]["signerName"]
        domain = f"{signer.partition('/')[0]}/*"
        inside = call.user is call.request.user
        if verb is None or any(
            self._authorizer.allows(
                Attributes(call.user, verb, GROUP, "signers", name=name), inside=inside
            )
            for name in (signer, domain)
        ):
            return
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise _forbidden(call, document, why)


def _claim(call: Call, document: Document) -> None:
    """Write into a new request whose it is, whatever it says itself."""
    spec, user = document["spec"], user_info(call.user)
    for field in ("username", "uid", "groups", "extra"):
        spec.pop(field, None)
        if field in user:
            spec[field] = user[field]


def _settle(document: Document, old: Document, door: str, now: str) -> None:
    """Undo what a door is not for, and tell when conditions have changed."""
    status: dict[str, Any] = dict(document.get("status") or {})
    wanted = [dict(each) for each in conditions(document)]
    if door == APPROVAL:
        status = dict(old.get("status") or {})
    else:
        wanted = _kept(wanted, old)
    for condition in wanted:
        condition["lastUpdateTime"] = condition.get("lastUpdateTime") or now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = _since(condition, old) or now
    status["conditions"] = wanted
    if not wanted:
        del status["conditions"]
    document["status"] = status


def _kept(wanted: list[dict[str, Any]], old: Document) -> list[dict[str, Any]]:
    """Conditions with those of before in their places that only an approval changes."""
    for name in (APPROVED, DENIED):
        known = [each for each in conditions(old) if each.get("type") == name]
        places = [at for at, each in enumerate(wanted) if each.get("type") == name]
        if len(known) == len(places):
            for place, condition in zip(places, known, strict=True):
                wanted[place] = dict(condition)
    return wanted


def _since(condition: Document, old: Document) -> str:
    """Since when a condition has had its status."""
    for known in conditions(old):
        if all(known.get(field) == condition.get(field) for field in ("type", "status")):
            return known.get("lastTransitionTime") or ""
    return ""


def _is_signed(document: Document, old: Document) -> bool:
    """Whether a change is what signers do."""
    return certificate(document) != certificate(old) or conditions(document) != conditions(old)


def _check_request(document: Document, old: Document | None) -> None:
    """Raises Invalid for a new one that holds no request, or one that its sender has no key to."""
    if old is not None:
        return
    sent: str = document["spec"]["request"]
    content = _bytes(sent)
    try:
        pki.read_request(content)
    except ValueError as error:
        kind, causes = SIGNING_REQUEST, [invalid("spec.request", sent, str(error))]
        causes += kind.validate(document, None, "").causes
        raise kind.invalid(document["metadata"]["name"], causes) from None


def _refuse_administrators(call: Call, document: Document) -> None:
    """Nobody becomes an administrator whom no role can bind (CertificateSubjectRestriction)."""
    if document["spec"]["signerName"] != CLIENT_SIGNER:
        return
    wanted = pki.read_request(_bytes(document["spec"]["request"]))
    if ADMINISTRATORS in wanted.groups:
        why = f"use of {CLIENT_SIGNER} signer with {ADMINISTRATORS} group is not allowed"
        raise _forbidden(call, document, why)


def _bytes(encoded: str) -> bytes:
    """What stands in a field in base64.  Raises BadRequest, as reading the whole would."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        kind = SIGNING_REQUEST
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            f"illegal base64 data: {error}"
        ) from None


def _forbidden(call: Call, document: Document, why: str) -> Forbidden:
    return forbidden(call.kind, at(document, "metadata", "name") or "", why)
