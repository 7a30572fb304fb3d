"""The VirtualMachine of a pool. Pure.

Names that it refers to get its number: those of its own DataVolumes always, of ConfigMaps and
Secrets if ``nameGeneration`` says so (KubeVirt's pool.go, indexVMSpec).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from corral.api.kind import at
from corral.api.kinds.cdi import permitted_clones
from corral.api.kinds.kubevirt.pool import (
    FINALIZER,
    REVISION_LABEL,
    NameGeneration,
    VirtualMachinePool,
)
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.defaults import PCI_TOPOLOGY
from corral.api.kinds.vmi.saved_memory import IDENTITY, RESTORE_FROM
from corral.api.object import Document
from corral.controllers.pool.vm_names import ordinal
from corral.reconcile.objects import owner_reference

_CLOUD_INIT = ("cloudInitNoCloud", "cloudInitConfigDrive")
_CLOUD_INIT_SECRETS = ("secretRef", "networkDataSecretRef")
_KEPT_FIELDS: tuple[tuple[str, ...], ...] = (
    ("spec", "architecture"),
    ("spec", "domain", "machine", "type"),
    ("spec", "domain", "firmware", "uuid"),
    ("spec", "domain", "firmware", "serial"),
    ("metadata", "annotations", PCI_TOPOLOGY),
    ("metadata", "annotations", RESTORE_FROM),
    ("metadata", "annotations", IDENTITY),
)
"""Fields of a VirtualMachine's template that were defaulted once, kept where the pool's are
unset."""


def new_vm(
    pool: VirtualMachinePool,
    name: str,
    revision: str,
    *,
    restore_annotations: Mapping[str, str] | None = None,
) -> Document:
    """Return the document of a VirtualMachine that a pool creates.

    ``restore_annotations`` restore its VMI from the memory of an earlier one.
    """
    labels, annotations, spec = _contents(pool, name, revision)
    if restore_annotations:
        metadata = spec["template"]["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **restore_annotations}
    return {
        "metadata": {
            "name": name,
            "namespace": pool.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [FINALIZER],
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": spec,
    }


def update(vm: VirtualMachine, pool: VirtualMachinePool, revision: str) -> list[Document]:
    """Return the JSON patch that updates a VirtualMachine to the pool's current template.

    Labels, annotations and spec are replaced: edits by users are lost.
    """
    labels, annotations, spec = _contents(pool, vm.metadata.name, revision)
    _keep_fields(spec["template"], msgspec.to_builtins(vm.spec.template))
    return [
        {"op": "test", "path": "/metadata/uid", "value": vm.metadata.uid},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/spec", "value": spec},
    ]


def _contents(
    pool: VirtualMachinePool, name: str, revision: str
) -> tuple[Document, Document, Document]:
    template = pool.spec.virtual_machine_template
    spec: Document = msgspec.to_builtins(template.spec)
    _number(spec, f"-{ordinal(name)}", pool.spec.name_generation or NameGeneration())
    mark = {REVISION_LABEL: revision}
    metadata = spec["template"].setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | mark
    annotations = permitted_clones.inherited(
        template.metadata.annotations, pool.metadata.annotations
    )
    return template.metadata.labels | mark, annotations, spec


def _number(spec: Document, suffix: str, switches: NameGeneration) -> None:
    """Append the suffix to names of objects that each VirtualMachine has of its own, in place."""
    own = set()
    for template in spec.get("dataVolumeTemplates") or ():
        own.add(at(template, "metadata", "name"))
        template["metadata"]["name"] += suffix
    for volume in spec["template"]["spec"].get("volumes") or ():
        for source, field in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName")):
            if at(volume, source, field) in own:
                volume[source][field] += suffix
        if switches.append_index_to_config_map_refs:
            _append(suffix, volume.get("configMap"), "name")
        if switches.append_index_to_secret_refs:
            _append(suffix, volume.get("secret"), "secretName")
            for reference in _cloud_init_secrets(volume):
                _append(suffix, reference, "name")


def _cloud_init_secrets(volume: Document) -> Iterator[Any]:
    for source in _CLOUD_INIT:
        for reference in _CLOUD_INIT_SECRETS:
            yield at(volume, source, reference)


def _append(suffix: str, reference: Any, field: str) -> None:
    if reference and reference.get(field):
        reference[field] += suffix


def _keep_fields(template: Document, before: Mapping[str, Any]) -> None:
    for *path, last in _KEPT_FIELDS:
        value = at(before, *path, last)
        if not value or at(template, *path, last):
            continue
        place = template
        for step in path:
            place[step] = place.get(step) or {}
            place = place[step]
        place[last] = value
