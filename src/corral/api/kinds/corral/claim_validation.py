"""Defaults and validation of VirtualMachineClaims."""

from collections.abc import Iterator
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import forbidden, invalid, required
from corral.api.kinds.corral.claim import DELETE
from corral.api.kinds.corral.label_name import check_name
from corral.api.object import Document
from corral.api.time import YEAR, parse_duration, parse_rfc3339

LARGEST_INLINE: Final = 16 << 10
"""Bytes of inline user data; a Secret may hold more."""
SHORTEST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 10.0 * YEAR

_MUTABLE: Final = ("ttl", "shutdownTime")


def default_claim(document: Document) -> None:
    """Fill in what the spec leaves open, in place."""
    spec = document.get("spec")
    if isinstance(spec, dict) and spec.get("shutdownPolicy") is None:
        spec["shutdownPolicy"] = DELETE


def validate_claim(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a VirtualMachineClaim.

    An unchanged spec passes: rules that became stricter since it was stored must not block changes
    of the metadata, such as the removal of finalizers.
    """
    spec = document["spec"]
    if old is None:
        causes = [
            *check_name(document, "the machine carries it as a label"),
            *_check_reference(spec),
            *_check_user_data(spec),
        ]
        causes += _check_duration(spec, "pendingTimeout")
    elif spec == old.get("spec"):
        return Verdict()
    else:
        causes = list(_check_immutable(spec, old.get("spec") or {}))
    causes += _check_duration(spec, "ttl")
    causes += _check_time(spec.get("shutdownTime"))
    return Verdict(causes)


def _check_reference(spec: Document) -> Iterator[Cause]:
    if not at(spec, "warmPoolRef", "name"):
        yield required("spec.warmPoolRef.name", "name the VirtualMachineWarmPool")


def _check_user_data(spec: Document) -> Iterator[Cause]:
    data = spec.get("userData")
    if data is None:
        return
    inline, reference = data.get("inline"), data.get("secretRef")
    if inline and reference is not None:
        yield forbidden("spec.userData.secretRef", "may not be set beside inline")
    elif inline:
        yield from _check_inline(inline)
    elif reference is None:
        yield required("spec.userData", "set inline or secretRef")
    elif not reference.get("name"):
        yield required("spec.userData.secretRef.name", "name the Secret")


def _check_inline(text: str) -> Iterator[Cause]:
    field = "spec.userData.inline"
    if (size := len(text.encode())) > LARGEST_INLINE:
        fault = f"has {size} bytes: more than {LARGEST_INLINE} belong in a Secret (secretRef)"
        yield invalid(field, f"{text[:20]}...", fault)
    if not text.startswith("#!"):
        fault = "must begin with #!, as a script does: a guest that has booted reads nothing else"
        yield invalid(field, text.partition("\n")[0][:50], fault)


def _check_immutable(spec: Document, old: Document) -> Iterator[Cause]:
    for name in sorted({*spec, *old} - set(_MUTABLE)):
        if spec.get(name) != old.get(name):
            fault = f"the field is immutable: only {' and '.join(_MUTABLE)} may change"
            yield forbidden(f"spec.{name}", fault)


def _check_duration(spec: Document, name: str) -> Iterator[Cause]:
    text: Any = spec.get(name)
    if text is None:
        return
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        yield invalid(f"spec.{name}", text, str(error))
        return
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        yield invalid(f"spec.{name}", text, "must be at least 1s and at most ten years")


def _check_time(text: str | None) -> Iterator[Cause]:
    if text is None:
        return
    try:
        parse_rfc3339(text)
    except ValueError as error:
        yield invalid("spec.shutdownTime", text, str(error))
