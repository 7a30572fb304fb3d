"""Constructors of rows for Kubernetes' own kinds."""

from functools import partial
from typing import Final

from corral.api.kind import Kind, Version
from corral.api.kinds.columns import age

kubernetes_kind: Final = partial(Kind, versions=(Version(name="v1"),), native=True)
"""Make the row of a kind of Kubernetes; most are served as v1 only."""
review_kind: Final = partial(kubernetes_kind, status=False, create_only=True, columns=(age(),))
"""Make the row of a kind that is only created and never stored, such as TokenReview."""
