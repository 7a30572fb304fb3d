"""TokenReview and SelfSubjectReview (authentication.k8s.io), which are never stored."""

from lightkube.models.authentication_v1 import SelfSubjectReview, TokenReview

from corral.api.kinds.kubernetes_kind import review_kind

GROUP = "authentication.k8s.io"


SELF_SUBJECT_REVIEW = review_kind(
    group=GROUP,
    plural="selfsubjectreviews",
    view=SelfSubjectReview,
    namespaced=False,
)

TOKEN_REVIEW = review_kind(
    group=GROUP,
    plural="tokenreviews",
    view=TokenReview,
    namespaced=False,
)

KINDS = (SELF_SUBJECT_REVIEW, TOKEN_REVIEW)
