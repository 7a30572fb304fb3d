"""Validation of VirtualMachines: KubeVirt's validating webhook (vms-admitter.go)."""

from collections.abc import Iterator
from typing import Any

from corral.api.errors import Cause
from corral.api.kind import Verdict, at
from corral.api.kinds.kubevirt.virtualmachine import RUN_STRATEGIES
from corral.api.kinds.vmi.admission import check_new_metadata, is_component, validate_spec
from corral.api.object import Document

RECEIVER = "WaitAsReceiver"
DEPRECATED_RUNNING = "spec.running is deprecated, please use spec.runStrategy instead."


def validate_vm(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a VirtualMachine and its template.

    A VirtualMachine that is being deleted passes, so that finalizers can be removed.  So does an
    unchanged spec: rules that became stricter since it was stored must not block other changes.
    """
    spec = document["spec"]
    if at(document, "metadata", "deletionTimestamp"):
        return Verdict()
    if old is not None and spec == old.get("spec"):
        return Verdict()
    namespace = at(document, "metadata", "namespace") or ""
    return validate_vm_spec(spec, "spec", namespace, at(old, "spec"), user)


def validate_vm_spec(
    spec: Document, path: str, namespace: str, old: Document | None, user: str
) -> Verdict:
    """Validate the spec of a VirtualMachine or of a pool's template; ``old`` is the stored one."""
    template = spec["template"]
    changed = old is None or template != old.get("template")
    warn = not is_component(user)
    verdict = validate_spec(template["spec"], f"{path}.template.spec", warn=changed and warn)
    verdict.causes += check_new_metadata(template, f"{path}.template.metadata", user)
    verdict.causes += _check_data_volumes(spec, path, namespace)
    verdict.causes += _check_run_strategy(spec, path)
    if warn:
        verdict.warnings += _warnings(spec, path)
    return verdict


def _check_run_strategy(spec: Document, path: str) -> Iterator[Cause]:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        message = (
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, "
            "please use RunStrategy instead"
        )
        yield Cause(f"{path}.running", message)
    if running is None and strategy is None:
        yield Cause(f"{path}.running", "RunStrategy must be specified")
    if strategy == RECEIVER:
        message = "DecentralizedLiveMigration feature gate is not enabled in kubevirt-config"
        yield Cause(f"{path}.runStrategy", f"Invalid RunStrategy ({RECEIVER}): {message}")
    elif strategy is not None and strategy not in RUN_STRATEGIES:
        yield Cause(f"{path}.runStrategy", f"Invalid RunStrategy ({strategy})")


def _warnings(spec: Document, path: str) -> Iterator[str]:
    if spec.get("running") is not None:
        yield DEPRECATED_RUNNING
    if spec.get("updateVolumesStrategy") not in (None, "Replacement"):
        yield f"{path}.updateVolumesStrategy has no effect in this version"


# ------------------------------------------------------------ dataVolumeTemplates


def _check_data_volumes(spec: Document, path: str, namespace: str) -> Iterator[Cause]:
    """Check that each template is valid, its name unique, and that a volume uses it.

    The field is spelled ``dataVolumeTemplate`` in KubeVirt's messages and paths.
    """
    used = set(_data_volumes_in_use(spec["template"]["spec"].get("volumes") or ()))
    names = set()
    for index, template in enumerate(spec.get("dataVolumeTemplates") or ()):
        here = f"{path}.dataVolumeTemplate[{index}]"
        name = at(template, "metadata", "name") or ""
        cause = _fault(template, name, here)
        if cause is not None:
            yield cause
            continue
        if name in names:
            yield Cause(f"{here}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        names.add(name)
        if name not in used:
            message = f"DataVolumeTemplate entry {here} must be referenced in the VMI template's "
            yield Cause(here, f"{message}'volumes' list", "FieldValueRequired")
        other = at(template, "metadata", "namespace")
        if other and other != namespace:
            message = f"Embedded DataVolume namespace {other} differs from VM namespace {namespace}"
            yield Cause(f"{path}.dataVolumeTemplates[{index}]", message)


def _data_volumes_in_use(volumes: Any) -> Iterator[str]:
    """Yield the names of DataVolumes that volumes use: as such, or as the claim of that name."""
    for volume in volumes:
        yield at(volume, "dataVolume", "name") or ""
        yield at(volume, "persistentVolumeClaim", "claimName") or ""


def _fault(template: Document, name: str, path: str) -> Cause | None:
    """Return the first cause for which the template itself is invalid."""
    spec = template["spec"]
    if not name:
        message = f"'name' field must not be empty for DataVolumeTemplate entry {path}.name."
        return Cause(f"{path}.name", message, "FieldValueRequired")
    target = [spec[form] for form in ("pvc", "storage") if spec.get(form) is not None]
    if not target:
        return Cause(f"{path}.PVC.Storage", "Missing Data volume PVC or Storage")
    if len(target) == 2:
        message = "Duplicate storage definition, both target storage and target pvc defined"
        return Cause(f"{path}.PVC.Storage", message)
    return _source_fault(spec, target[0], path)


def _source_fault(spec: Document, target: Document, path: str) -> Cause | None:
    is_external = target.get("dataSource") is not None or target.get("dataSourceRef") is not None
    source, reference = spec.get("source"), spec.get("sourceRef")
    if source is None and reference is None:
        if is_external:
            return None
        message = "Data volume should have either Source, SourceRef, or be externally populated"
        return Cause(f"{path}.source.sourceRef", message)
    if is_external:
        message = "External population is incompatible with Source and SourceRef"
        return Cause(f"{path}.source", message)
    if source is None:
        return None
    count = sum(each is not None for each in source.values())
    if reference is not None:  # KubeVirt accepts this, but CDI then refuses the DataVolume so
        message = "Data volume should have either Source or SourceRef"
    elif count == 1:
        return None
    else:
        message = "Multiple dataVolume sources" if count else "Missing dataVolume valid source"
    return Cause(f"{path}.source", message)
