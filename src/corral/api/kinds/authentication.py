"""Questions about who somebody is (Kubernetes' authentication.k8s.io): answered, never kept."""

from lightkube.models.authentication_v1 import SelfSubjectReview, TokenReview

from corral.api.kind import Kind, Version
from corral.api.kinds.columns import age

GROUP = "authentication.k8s.io"


SELF_SUBJECT_REVIEW = Kind(
    group=GROUP,
    name="SelfSubjectReview",
    plural="selfsubjectreviews",
    singular="selfsubjectreview",
    versions=(Version(name="v1"),),
    view=SelfSubjectReview,
    namespaced=False,
    status=False,
    native=True,
    only_created=True,
    columns=(age(),),
)

TOKEN_REVIEW = Kind(
    group=GROUP,
    name="TokenReview",
    plural="tokenreviews",
    singular="tokenreview",
    versions=(Version(name="v1"),),
    view=TokenReview,
    namespaced=False,
    status=False,
    native=True,
    only_created=True,
    columns=(age(),),
)

KINDS = (SELF_SUBJECT_REVIEW, TOKEN_REVIEW)
