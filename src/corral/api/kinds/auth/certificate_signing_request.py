"""CertificateSigningRequest: a request for a certificate of a signer.

Validation is that of kube-apiserver (pkg/apis/certificates/validation).  The contents of the
request and of the certificate are checked on admission, which knows the user and the subresource.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from lightkube.models.certificates_v1 import CertificateSigningRequest

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import (
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from corral.api.kinds.columns import NONE, age, field, text
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.names import label_faults, subdomain_faults
from corral.api.object import Document
from corral.api.time import human_duration

GROUP: Final = "certificates.k8s.io"
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""The signer of client certificates for the API server."""
KUBELET_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
"""The signer of client certificates of nodes."""
KUBELET_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
"""The signer of serving certificates of kubelets."""
NODE_USER_PREFIX: Final = "system:node:"
NODE_GROUP: Final = "system:nodes"
APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
SHORTEST_SECONDS: Final = 600

_LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
_LONGEST_SIGNER: Final = 571
_LONGEST_DOMAIN: Final = 253
USAGES: Final = (
    *("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign"),
    *("data encipherment", "decipher only", "digital signature", "email protection"),
    *("encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement"),
    *("key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime"),
    *("server auth", "signing", "timestamping"),
)
_PERMANENT: Final = (APPROVED, DENIED, FAILED)
"""Conditions that can only be True and cannot be removed."""


def _validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(chain(_check_spec(document["spec"]), _check_conditions(document))))


def _check_spec(spec: Document) -> Iterator[Cause]:
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in USAGES:
            yield unsupported(f"spec.usages[{index}]", usage, USAGES)
    first: dict[str, int] = {}
    for index, usage in enumerate(usages):
        if first.setdefault(usage, index) < index:
            yield duplicate(f"spec.usages[{index}]", usage)
    yield from _check_signer("spec.signerName", spec["signerName"])
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_SECONDS:
        fault = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, fault)


def _check_signer(path: str, name: str) -> Iterator[Cause]:
    """Check a signer's name: a domain and a path, as in ``example.com/signer-name``."""
    if name == _LEGACY_SIGNER:
        yield invalid(path, name, "the legacy signerName is not allowed via this API version")
        return
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        form = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, form)
        return
    if len(domain) > _LONGEST_DOMAIN:
        yield too_long(path, _LONGEST_DOMAIN)
    labels = domain.split(".")
    yield from _check_labels(path, domain, ((each, label_faults(each)) for each in labels))
    if len(labels) < 2:
        fault = "should be a domain with at least two segments separated by dots"
        yield invalid(path, domain, fault)
    yield from _check_labels(
        path, rest, ((each, subdomain_faults(each)) for each in rest.split("."))
    )
    if len(name) > _LONGEST_SIGNER:
        yield too_long(path, _LONGEST_SIGNER)


def _check_labels(
    path: str, whole: str, checked: Iterator[tuple[str, Sequence[str]]]
) -> Iterator[Cause]:
    """Yield the causes of the first invalid label of a name."""
    for label, faults in checked:
        if faults:
            for fault in faults:
                yield invalid(path, whole, f'validating label "{label}": {fault}')
            return


def _check_conditions(document: Document) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, condition in enumerate(conditions(document)):
        path, name = f"status.conditions[{index}]", condition.get("type") or ""
        if not name:
            yield required(f"{path}.type")
        allowed = ("True",) if name in _PERMANENT else ("False", "True", "Unknown")
        status = condition.get("status") or ""
        if not status:
            yield required(f"{path}.status")
        elif status not in allowed:
            yield unsupported(f"{path}.status", status, allowed)
        if {name, *seen} >= {APPROVED, DENIED} and name in (APPROVED, DENIED):
            fault = "Approved and Denied conditions are mutually exclusive"
            yield invalid(f"{path}.type", name, fault)
        if name in seen:
            yield duplicate(f"{path}.type", name)
        seen.add(name)


def change_causes(document: Document, old: Document, *, subresource: str) -> Iterator[Cause]:
    """Check a change through a subresource; empty for the object itself."""
    path = "status.conditions"
    for name in _PERMANENT:
        if _count(document, name) < _count(old, name):
            yield forbidden(path, f'updates may not remove a condition of type "{name}"')
    if subresource != "approval":
        for name in (APPROVED, DENIED):
            if _count(document, name) > _count(old, name):
                yield forbidden(path, f'updates may not add a condition of type "{name}"')
    before = certificate(old)
    if certificate(document) != before:
        if subresource != "status":
            yield forbidden("status.certificate", "updates may not set certificate content")
        elif before:
            fault = "updates may not modify existing certificate content"
            yield forbidden("status.certificate", fault)


def conditions(document: Document) -> Sequence[Document]:
    return at(document, "status", "conditions") or ()


def certificate(document: Document) -> str:
    """Return the issued certificate in base64; empty if there is none."""
    return at(document, "status", "certificate") or ""


def _count(document: Document, name: str) -> int:
    return sum(each.get("type") == name for each in conditions(document))


def _default(document: Document) -> None:
    document.setdefault("status", {})


def _state(document: Document) -> str:
    has = {each.get("type") for each in conditions(document)}
    words = [next((name for name in (DENIED, APPROVED) if name in has), "Pending")]
    words += [FAILED] * (FAILED in has) + ["Issued"] * bool(certificate(document))
    return ",".join(words)


def _duration(document: Document) -> str:
    seconds = at(document, "spec", "expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


SIGNING_REQUEST = kubernetes_kind(
    group=GROUP,
    plural="certificatesigningrequests",
    short=("csr",),
    view=CertificateSigningRequest,
    namespaced=False,
    approval=True,
    columns=(
        age(),
        field("SignerName", "spec", "signerName", description="the signer"),
        field("Requestor", "spec", "username", description="the user who requests it"),
        Column(
            name="RequestedDuration",
            cell=_duration,
            description="requested lifetime of the certificate",
        ),
        Column(
            name="Condition",
            cell=_state,
            description="whether it is approved or denied, and whether a certificate was issued",
        ),
    ),
    selectable={"spec.signerName": text("spec", "signerName")},
    default=_default,
    validate=_validate,
)
