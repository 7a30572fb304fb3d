"""Constructor of the rows of Kubernetes' kinds that are not implemented."""

from collections.abc import Callable, Iterable

import msgspec

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Kind, Verdict, Version
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

Causes = Callable[[Document], Iterable[Cause]]


def _no_causes(_document: Document) -> Iterable[Cause]:
    return ()


def _no_defaults(_document: Document) -> None:
    """Default nothing."""


def unimplemented(
    view: type[msgspec.Struct],
    plural: str,
    api_version: str,
    *columns: Column,
    why: str,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    namespaced: bool = False,
    status: bool = False,
    default: Callable[[Document], None] = _no_defaults,
    causes: Causes = _no_causes,
) -> Kind:
    """Return the row of a kind of Kubernetes; ``why`` is why it has no effect, for the warning."""
    name = view.__name__
    group, version = api_version.split("/")
    warning = f"{why}: nothing acts on this {name}"

    def validate(document: Document, _old: Document | None, _user: str) -> Verdict:
        return Verdict(limited(causes(document)), [warning])

    return kubernetes_kind(
        group=group,
        plural=plural,
        short=short,
        categories=categories,
        versions=(Version(name=version),),
        view=view,
        namespaced=namespaced,
        status=status,
        columns=columns,
        default=default,
        validate=validate,
    )
