"""What rows of Kubernetes' own kinds share, beside their groups."""

from functools import partial
from typing import Final

from corral.api.kind import Kind, Version
from corral.api.kinds.columns import age

kubernetes_kind: Final = partial(Kind, versions=(Version(name="v1"),), native=True)
"""The row of a kind that Kubernetes brings; most are served as v1 only."""
question: Final = partial(kubernetes_kind, status=False, only_created=True, columns=(age(),))
"""The row of a kind whose objects are created to be answered, and never kept."""
