"""The selector of a set of objects that makes its own from a template."""

from collections.abc import Mapping

import msgspec

from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, label_selector
from corral.reconcile.controller import Terminal


def own_selector(
    selector: msgspec.Struct | None, labels: Mapping[str, str], *, template: str
) -> LabelSelector:
    """A set's ``spec.selector``; ``labels`` are those of what it makes, from the field `template`.

    Raises Terminal for one that cannot be read, is empty or does not match these labels.  Admission
    refuses such sets; one that is stored all the same would take every object that nobody manages,
    or make objects for ever without owning any.
    """
    try:
        found = label_selector(msgspec.to_builtins(selector))
    except BadRequest as error:
        raise Terminal(f"spec.selector cannot be read: {error}") from error
    if not (found.requirements or found.nothing):
        raise Terminal("spec.selector is empty: it would take every object that nobody manages")
    if not labels or not found.matches(labels):
        raise Terminal(f"spec.selector does not match {template}.metadata.labels")
    return found
