"""Defaults and validation of VirtualMachineWarmPools."""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import invalid
from corral.api.kinds.corral.label_name import check_name
from corral.api.kinds.corral.spare_state import PAUSED
from corral.api.kinds.corral.warm_pool import FROM_BOOT, FROM_CHECKPOINT, RUNNING, SAVED
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.admission import check_new_metadata, is_component, validate_spec
from corral.api.object import Document
from corral.api.time import YEAR, parse_duration

SHORTEST_AGE_SECONDS: Final = 60.0
"""The smallest ``spec.maxAge``: with less, spares would be replaced while they boot."""
LONGEST_AGE_SECONDS: Final = 100.0 * YEAR

_INVALID: Final = "FieldValueInvalid"
_UNSUPPORTED: Final = "FieldValueNotSupported"
_POOL: Final = VirtualMachinePool.kind
_TARGETS: Final = {
    VirtualMachineInstanceReplicaSet.kind: ("kubevirt.io/v1", "kubevirt.io/v1alpha3"),
    _POOL: ("pool.kubevirt.io/v1beta1", "pool.kubevirt.io/v1alpha1"),
}
"""API versions of the kinds that may be targets."""


def default_warm_pool(document: Document) -> None:
    """Fill in what the spec leaves open, in place."""
    spec = document.get("spec")
    if isinstance(spec, dict):
        spares = 0 if at(spec, "targetRef", "kind") == _POOL else 1
        for name, value in (("replicas", spares), ("startFrom", FROM_BOOT), ("state", RUNNING)):
            if spec.get(name) is None:
                spec[name] = value


def validate_warm_pool(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a VirtualMachineWarmPool and its template.

    An unchanged spec passes: rules that became stricter since it was stored must not block changes
    of the metadata, such as the removal of finalizers.
    """
    spec = document["spec"]
    if old is not None and spec == old.get("spec"):
        return Verdict()
    verdict = Verdict(
        [
            *check_name(document, "spares carry it as a label"),
            *_check_source(spec),
            *_check_members(spec),
            *_check_support(spec),
        ]
    )
    verdict.causes += _check_age(spec.get("maxAge"))
    if (template := spec.get("template")) is not None:
        warn = template != at(old, "spec", "template") and not is_component(user)
        of_template = validate_spec(template["spec"], "spec.template.spec", warn=warn)
        verdict.causes += of_template.causes
        verdict.causes += check_new_metadata(template, "spec.template.metadata", user)
        verdict.warnings += of_template.warnings
    return verdict


def _check_source(spec: Document) -> Iterator[Cause]:
    target, template = spec.get("targetRef"), spec.get("template")
    if target is None and template is None:
        message = "set targetRef, to keep spares of a set, or template, to keep spares for claims"
        yield Cause("spec", message, "FieldValueRequired")
    elif target is not None and template is not None:
        message = "may not be set beside targetRef: spares of a set are made from its template"
        yield Cause("spec.template", message, "FieldValueForbidden")
    if target is not None:
        yield from _check_target(target)


def _check_target(target: Document) -> Iterator[Cause]:
    kind, version, name = (target.get(each) or "" for each in ("kind", "apiVersion", "name"))
    if kind not in _TARGETS:
        yield Cause("spec.targetRef.kind", _unsupported(kind, tuple(_TARGETS)), _UNSUPPORTED)
    elif version not in _TARGETS[kind]:
        message = _unsupported(version, _TARGETS[kind])
        yield Cause("spec.targetRef.apiVersion", message, _UNSUPPORTED)
    if not name:
        yield Cause("spec.targetRef.name", "name the set or pool", "FieldValueRequired")


def _check_members(spec: Document) -> Iterator[Cause]:
    """Check that the warm pool of a VirtualMachinePool keeps a checkpoint alone."""
    if at(spec, "targetRef", "kind") != _POOL:
        return
    why = "members of a VirtualMachinePool have numbers and disks of their own"
    if (start := spec.get("startFrom")) != FROM_CHECKPOINT:
        fault = f'must be "{FROM_CHECKPOINT}": {why}, so they start from it instead of booting'
        yield invalid("spec.startFrom", start, fault)
    if replicas := spec.get("replicas"):
        fault = f"must be 0: {why}, so a spare cannot become one; they start from the checkpoint"
        yield invalid("spec.replicas", replicas, fault)


def _check_support(spec: Document) -> Iterator[Cause]:
    value = spec.get("state")
    if value == SAVED:
        message = (
            f"{_unsupported(value, (RUNNING, PAUSED))}; startFrom: Checkpoint with replicas: 0"
            " keeps a machine on disk without memory, from which the members of the set start"
        )
        yield Cause("spec.state", message, _UNSUPPORTED)


def _check_age(text: str | None) -> Iterator[Cause]:
    if text is None:
        return
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        yield Cause("spec.maxAge", str(error), _INVALID)
        return
    if not SHORTEST_AGE_SECONDS <= seconds <= LONGEST_AGE_SECONDS:
        message = f"must be at least {SHORTEST_AGE_SECONDS:.0f}s, and no more than 100 years"
        yield Cause("spec.maxAge", message, _INVALID)


def _unsupported(value: str, supported: tuple[str, ...]) -> str:
    values = ", ".join(f'"{each}"' for each in supported)
    return f'Unsupported value: "{value[:50]}": supported values in this version: {values}'
