"""Validation of VirtualMachinePools: KubeVirt's validating webhook (vmpool-admitter.go)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from corral.api.errors import BadRequest, Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.kubevirt.vm_validation import validate_vm_spec
from corral.api.kinds.label_selectors import selector_causes
from corral.api.kinds.vmi.admission import check_selector, is_component
from corral.api.kinds.vmi.shared_disks import shared_disks
from corral.api.object import Document
from corral.api.selectors import Requirement, requirement
from corral.api.time import parse_duration

TEMPLATE = "spec.virtualMachineTemplate"
OLD_FIELDS = {
    "appendPostfixToConfigMapReferences": "appendIndexToConfigMapRefs",
    "appendPostfixToSecretReferences": "appendIndexToSecretRefs",
}
"""Old names of fields of ``nameGeneration`` in KubeVirt's user guide, and their present ones."""
STRATEGIES = ("unmanaged", "opportunistic", "proactive")
_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}
"""Operators of node selector requirements, and those of label selectors."""
_PERCENT = re.compile(r"[+-]?[0-9]{1,9}%", re.ASCII)


def read_old_fields(document: Document) -> None:
    """Convert the user guide's spelling of v1alpha1's ``nameGeneration``, in place.

    The guide has the fields in the spec itself and begins them with a capital; present names win.
    """
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    present = spec.get("nameGeneration")
    if not isinstance(present, dict | None):
        return
    converted = {}
    for place in (spec, present or {}):
        for old, new in OLD_FIELDS.items():
            for name in (old, old[0].upper() + old[1:]):
                if name in place:
                    converted[new] = place.pop(name)
    if converted:
        spec["nameGeneration"] = {**converted, **(present or {})}


def validate_pool(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a VirtualMachinePool and its template.

    An unchanged spec passes: rules that became stricter since it was stored must not block changes
    of the pool's metadata, such as the removal of its finalizers.
    """
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return Verdict()
    template = spec.get("virtualMachineTemplate")
    if template is None:
        message = "missing virtual machine template."
        return Verdict([Cause("spec.template", message, "FieldValueRequired")])
    namespace = at(document, "metadata", "namespace") or ""
    old_template = at(old, "spec", "virtualMachineTemplate")
    verdict = validate_vm_spec(
        template["spec"], f"{TEMPLATE}.spec", namespace, at(old_template, "spec"), user
    )
    verdict.causes += check_selector(
        spec.get("selector"), at(template, "metadata", "labels"), "virtualmachinepool"
    )
    verdict.causes += _check_max_unavailable(spec.get("maxUnavailable"))
    for name in ("updateStrategy", "scaleInStrategy"):
        verdict.causes += _check_strategy(spec.get(name) or {}, f"spec.{name}")
    verdict.causes += _check_duration(spec.get("autohealing") or {})
    if old is not None and spec.get("selector") != at(old, "spec", "selector"):
        verdict.causes.append(Cause("spec.selector", "selector is immutable after creation."))
    if template != old_template and not is_component(user):
        verdict.warnings += shared_disks(
            template["spec"]["template"]["spec"],
            f"{TEMPLATE}.spec.template.spec",
            own=_data_volume_names(template["spec"]),
        )
    return verdict


def _check_max_unavailable(value: int | str | None) -> Iterator[Cause]:
    field = "spec.maxUnavailable"
    if isinstance(value, int):
        if value <= 0:
            yield Cause(field, "maxUnavailable must be greater than 0")
    elif value is not None:
        if not value.endswith("%"):
            yield Cause(field, "maxUnavailable percentage must end with %")
        elif not _PERCENT.fullmatch(value):
            yield Cause(field, f"maxUnavailable percentage is invalid: {value[:50]!r}")
        elif not 1 <= int(value[:-1]) <= 100:
            yield Cause(field, "maxUnavailable percentage must be between 1 and 100")


def _check_strategy(strategy: Mapping[str, Any], field: str) -> Iterator[Cause]:
    chosen = [name for name in STRATEGIES if strategy.get(name) is not None]
    if len(chosen) > 1:
        message = "only one strategy can be configured at a time: but found "
        yield Cause(field, f"{message}{', '.join(chosen)} strategies")
    path = ("proactive", "selectionPolicy", "selectors")
    selectors = at(strategy, *path) or {}
    here = f"{field}.{'.'.join(path)}"
    yield from limited(
        selector_causes(f"{here}.labelSelector", selectors.get("labelSelector") or {})
    )
    name = "nodeSelectorRequirementMatcher"
    for index, document in enumerate(selectors.get(name) or ()):
        try:
            node_requirement(document)
        except BadRequest as error:
            yield Cause(f"{here}.{name}[{index}]", error.message)


def node_requirement(document: Mapping[str, Any]) -> Requirement:
    """Parse a core/v1 NodeSelectorRequirement.  Raises BadRequest."""
    operator, key = document["operator"], document["key"]
    if operator not in _OPERATORS:
        raise BadRequest(f'"{operator[:50]}" is not a valid node selector operator')
    return requirement(key, _OPERATORS[operator], tuple(document.get("values") or ()))


def _check_duration(autohealing: Mapping[str, Any]) -> Iterator[Cause]:
    text = autohealing.get("minFailingToStartDuration")
    try:
        if text is not None:
            parse_duration(text)
    except ValueError as error:
        field = "spec.autohealing.minFailingToStartDuration"
        yield Cause(field, f"{field}: {error}")


def _data_volume_names(spec: Document) -> set[str]:
    """Return the names of DataVolume templates: each VirtualMachine has its own of them."""
    return {at(each, "metadata", "name") or "" for each in spec.get("dataVolumeTemplates") or ()}
