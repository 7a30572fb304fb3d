"""Access reviews (authorization.k8s.io), which are never stored."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.authorization_v1 import (
    LocalSubjectAccessReview,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    SubjectAccessReview,
)

from corral.api.errors import Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import invalid
from corral.api.kinds.kubernetes_kind import review_kind
from corral.api.object import Document

GROUP: Final = "authorization.k8s.io"

_RESOURCE = "spec.resourceAttributes"
_NON_RESOURCE = "spec.nonResourceAttributes"


def _validate_self(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(_check_attributes(document)))


def _validate_subject(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited((*_check_attributes(document), *_check_subject(document))))


def _validate_local(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(
        limited(
            (*_check_attributes(document), *_check_subject(document), *_check_namespace(document))
        )
    )


def _check_attributes(document: Document) -> Iterator[Cause]:
    resource, path = (
        at(document, "spec", name.partition(".")[2]) for name in (_RESOURCE, _NON_RESOURCE)
    )
    if resource is not None and path is not None:
        yield invalid(
            _NON_RESOURCE, path, "cannot be specified in combination with resourceAttributes"
        )
    if resource is None and path is None:
        fault = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid(_RESOURCE, None, fault)


def _check_subject(document: Document) -> Iterator[Cause]:
    spec = document["spec"]
    if not spec.get("user") and not spec.get("groups"):
        fault = "at least one of user or group must be specified"
        yield invalid("spec.user", spec.get("user") or "", fault)


def _check_namespace(document: Document) -> Iterator[Cause]:
    if at(document, "spec", "nonResourceAttributes") is not None:
        yield invalid(_NON_RESOURCE, None, "disallowed on this kind of request")
    namespace = at(document, "spec", "resourceAttributes", "namespace") or ""
    if namespace != document["metadata"]["namespace"]:
        yield invalid(f"{_RESOURCE}.namespace", namespace, "must match metadata.namespace")


SELF_SUBJECT_ACCESS_REVIEW = review_kind(
    group=GROUP,
    plural="selfsubjectaccessreviews",
    view=SelfSubjectAccessReview,
    namespaced=False,
    validate=_validate_self,
)

SUBJECT_ACCESS_REVIEW = review_kind(
    group=GROUP,
    plural="subjectaccessreviews",
    view=SubjectAccessReview,
    namespaced=False,
    validate=_validate_subject,
)

LOCAL_SUBJECT_ACCESS_REVIEW = review_kind(
    group=GROUP,
    plural="localsubjectaccessreviews",
    view=LocalSubjectAccessReview,
    validate=_validate_local,
)

SELF_SUBJECT_RULES_REVIEW = review_kind(
    group=GROUP,
    plural="selfsubjectrulesreviews",
    view=SelfSubjectRulesReview,
    namespaced=False,
)

KINDS = (
    SELF_SUBJECT_ACCESS_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
)
