"""Kinds of Kubernetes that are questions: they are created to be answered, and never kept."""

from functools import partial
from typing import Final

from corral.api.kind import Kind, Version
from corral.api.kinds.columns import age

question: Final = partial(
    Kind,
    versions=(Version(name="v1"),),
    status=False,
    native=True,
    only_created=True,
    columns=(age(),),
)
