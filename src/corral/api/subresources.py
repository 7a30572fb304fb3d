"""Subresources, as discovery and OpenAPI list them: ``pods/log``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A subresource of a kind.

    group: may have no kinds of its own (subresources.kubevirt.io).
    name: "" for a resource that is no kind (external.metrics.k8s.io).
    response_kind: group, version and kind of requests and responses.
    request, response: types of their bodies, for OpenAPI; a response without one is text.
    query: descriptions of query parameters, by name.
    path_parameters: what follows the name in the path.
    """

    group: str
    version: str
    plural: str
    name: str
    response_kind: tuple[str, str, str]
    verbs: tuple[str, ...] = ("get",)
    namespaced: bool = True
    request: type[msgspec.Struct] | None = None
    response: type[msgspec.Struct] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    path_parameters: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.plural}/{self.name}" if self.name else self.plural
