"""The selector of a set that creates its objects from a template."""

from collections.abc import Mapping

import msgspec

from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, label_selector
from corral.reconcile.controller import TerminalError


def own_selector(
    selector: msgspec.Struct | None, labels: Mapping[str, str], *, template: str
) -> LabelSelector:
    """Return a set's ``spec.selector``; ``labels`` are those of the field named by ``template``.

    Raises TerminalError for one that cannot be parsed, is empty or does not match these labels.
    Admission refuses such sets; one that is stored all the same would adopt every orphan, or create
    objects for ever without owning any.
    """
    try:
        parsed = label_selector(msgspec.to_builtins(selector))
    except BadRequest as error:
        raise TerminalError(f"spec.selector cannot be parsed: {error}") from error
    if not (parsed.requirements or parsed.nothing):
        raise TerminalError(
            "spec.selector is empty: it would adopt every object without a controller"
        )
    if not labels or not parsed.matches(labels):
        raise TerminalError(f"spec.selector does not match {template}.metadata.labels")
    return parsed
