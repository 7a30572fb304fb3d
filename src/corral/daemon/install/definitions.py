"""CustomResourceDefinitions of an installation: of every kind that KubeVirt and CDI define."""

from collections.abc import Iterator

from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.kinds.crd import builtin
from corral.api.object import Document
from corral.daemon.install.options import labeled


def defined_kinds() -> tuple[Kind, ...]:
    """Return the kinds that an installation defines."""
    return tuple(kind for kind in KINDS if builtin.has_definition(kind))


def documents() -> Iterator[Document]:
    """Yield the definitions."""
    for kind in defined_kinds():
        yield labeled(builtin.portable_definition_of(kind))
