"""Admission of CertificateSigningRequests: requester, approval and signing.

As in Kubernetes, the right to update a request does not suffice: approvers and signers need the
verb ``approve`` or ``sign`` on ``signers`` of certificates.k8s.io, by the signer's name or domain.
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


class CertificateRequests:
    """The admission plugin of CertificateSigningRequests.  ``now`` is seconds since 1970."""

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
        """Set the requester of a new request; restrict updates to the subresource's fields."""
        if old is None:
            _set_requester(call, document)
            return
        document["spec"] = old["spec"]
        if call.subresource:
            _restrict_update(document, old, call.subresource, rfc3339(self._now()))

    def _guard(self, call: Call, document: Document, old: Document | None) -> None:
        """Check a change.  Raises Forbidden, and Invalid for one that its subresource excludes."""
        if old is None:
            _refuse_administrators(call, document)
            return
        causes = list(change_causes(document, old, subresource=call.subresource))
        issued = certificate(document)
        if issued != certificate(old) and (fault := pki.certificate_fault(_bytes(issued))):
            causes.append(invalid("status.certificate", "<certificate data>", fault))
        if causes:
            raise call.kind.invalid(call.name, causes)
        if call.subresource == APPROVAL or _is_signed(document, old):
            self._require(call, document, _RIGHTS.get(call.subresource))

    def _require(self, call: Call, document: Document, verb: str | None) -> None:
        signer = document["spec"]["signerName"]
        domain = f"{signer.partition('/')[0]}/*"
        is_component = call.is_by_component
        if verb is None or any(
            self._authorizer.allows(
                Attributes(call.user, verb, GROUP, "signers", name=name), is_component=is_component
            )
            for name in (signer, domain)
        ):
            return
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise _forbidden(call, document, why)


def _set_requester(call: Call, document: Document) -> None:
    """Overwrite the requester's fields of a new request with the authenticated user."""
    spec, user = document["spec"], user_info(call.user)
    for field in ("username", "uid", "groups", "extra"):
        spec.pop(field, None)
        if field in user:
            spec[field] = user[field]


def _restrict_update(document: Document, old: Document, subresource: str, now: str) -> None:
    """Restore the fields that a subresource does not change, and set times of conditions."""
    status: dict[str, Any] = dict(document.get("status") or {})
    new_conditions = [dict(each) for each in conditions(document)]
    if subresource == APPROVAL:
        status = dict(old.get("status") or {})
    else:
        new_conditions = _keep_approval(new_conditions, old)
    for condition in new_conditions:
        condition["lastUpdateTime"] = condition.get("lastUpdateTime") or now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = _transition_time(condition, old) or now
    status["conditions"] = new_conditions
    if not new_conditions:
        del status["conditions"]
    document["status"] = status


def _keep_approval(new_conditions: list[dict[str, Any]], old: Document) -> list[dict[str, Any]]:
    """Return conditions with Approved and Denied, which only ``approval`` changes, restored."""
    for name in (APPROVED, DENIED):
        previous = [each for each in conditions(old) if each.get("type") == name]
        positions = [at for at, each in enumerate(new_conditions) if each.get("type") == name]
        if len(previous) == len(positions):
            for position, condition in zip(positions, previous, strict=True):
                new_conditions[position] = dict(condition)
    return new_conditions


def _transition_time(condition: Document, old: Document) -> str:
    """Return when a condition got its present status; "" if it is new."""
    for previous in conditions(old):
        if all(previous.get(field) == condition.get(field) for field in ("type", "status")):
            return previous.get("lastTransitionTime") or ""
    return ""


def _is_signed(document: Document, old: Document) -> bool:
    """Return whether a change sets the certificate or conditions."""
    return certificate(document) != certificate(old) or conditions(document) != conditions(old)


def _check_request(document: Document, old: Document | None) -> None:
    """Check the PKCS#10 request of a new object, and its signature.  Raises Invalid."""
    if old is not None:
        return
    encoded: str = document["spec"]["request"]
    content = _bytes(encoded)
    try:
        pki.read_request(content)
    except ValueError as error:
        kind, causes = SIGNING_REQUEST, [invalid("spec.request", encoded, str(error))]
        causes += kind.validate(document, None, "").causes
        raise kind.invalid(document["metadata"]["name"], causes) from None


def _refuse_administrators(call: Call, document: Document) -> None:
    """Reject client certificates for the administrators' group (CertificateSubjectRestriction)."""
    if document["spec"]["signerName"] != CLIENT_SIGNER:
        return
    request = pki.read_request(_bytes(document["spec"]["request"]))
    if ADMINISTRATORS in request.groups:
        why = f"use of {CLIENT_SIGNER} signer with {ADMINISTRATORS} group is not allowed"
        raise _forbidden(call, document, why)


def _bytes(encoded: str) -> bytes:
    """Decode a field in base64.  Raises BadRequest, as Kubernetes' decoding of the object."""
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
