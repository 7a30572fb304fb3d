"""Questions about who somebody is (Kubernetes' authentication.k8s.io): answered, never kept."""

from lightkube.models.authentication_v1 import SelfSubjectReview, TokenReview

from corral.api.kinds.kubernetes_kind import question

GROUP = "authentication.k8s.io"


SELF_SUBJECT_REVIEW = question(
    group=GROUP,
    plural="selfsubjectreviews",
    view=SelfSubjectReview,
    namespaced=False,
)

TOKEN_REVIEW = question(
    group=GROUP,
    plural="tokenreviews",
    view=TokenReview,
    namespaced=False,
)

KINDS = (SELF_SUBJECT_REVIEW, TOKEN_REVIEW)
