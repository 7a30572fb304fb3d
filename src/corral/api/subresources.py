"""What is below the objects of a kind, as discovery and OpenAPI tell it: ``pods/log``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """Something below the objects of a kind.

    ``group`` may be one that has no kinds of its own (subresources.kubevirt.io).  ``responds`` is
    the group, version and kind of what is sent and answered.  Without a ``name`` it is what the
    plural itself names, which is no kind (external.metrics.k8s.io).

    OpenAPI tells more: ``takes`` is what a request holds, ``answers`` what an answer holds: a
    message, or text where it is none.  ``query`` has what the query may say, by name and with what
    it means; ``varying`` what else of the path varies, behind the name.
    """

    group: str
    version: str
    plural: str
    name: str
    responds: tuple[str, str, str]
    verbs: tuple[str, ...] = ("get",)
    namespaced: bool = True
    takes: type[msgspec.Struct] | None = None
    answers: type[msgspec.Struct] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    varying: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.plural}/{self.name}" if self.name else self.plural
