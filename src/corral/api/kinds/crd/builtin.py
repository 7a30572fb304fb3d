"""CustomResourceDefinitions of built-in kinds that KubeVirt's and CDI's operators define elsewhere.

Clients look for them to find out whether KubeVirt is installed, and which versions it serves.
"""

from typing import Any

from corral.api.kind import Kind, Scale, Version
from corral.api.kinds.crd.well_known import BUILT_IN, KIND
from corral.api.merge_keys import PATCH_KEY, PATCH_STRATEGY
from corral.api.object import Document
from corral.api.schema import structural

_OPERATORS = {"cdi.kubevirt.io": "cdi-operator"}


def definition_of(kind: Kind) -> Document:
    """Return the definition of a built-in kind."""
    names: Document = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.name,
        "listKind": f"{kind.name}List",
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    if kind.categories:
        names["categories"] = list(kind.categories)
    operator = _OPERATORS.get(kind.group, "virt-operator")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": KIND,
        "metadata": {
            "name": kind.resource,
            "labels": {"app.kubernetes.io/managed-by": operator},
            "annotations": {BUILT_IN: "true"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "conversion": {"strategy": "None"},
            "versions": [_version(kind, version) for version in kind.versions],
        },
    }


def _version(kind: Kind, version: Version) -> Document:
    row: Document = {
        "name": version.name,
        "served": True,
        "storage": version is kind.versions[0],
        "schema": {"openAPIV3Schema": _schema(kind, version.name)},
    }
    subresources: Document = {"status": {}} if kind.status else {}
    if kind.scale is not None:
        subresources["scale"] = _scale(kind.scale)
    if subresources:
        row["subresources"] = subresources
    if version.deprecated:
        row["deprecated"] = True
    return row


def _schema(kind: Kind, version: str) -> dict[str, Any]:
    schema = dict(structural(kind, version))
    metadata = {"metadata": {"type": "object"}}
    return _without_patch_strategy({**schema, "properties": {**schema["properties"], **metadata}})


def _without_patch_strategy(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the extensions of strategic merge patch, which CRDs do not have."""
    return {
        word: _without_patch_strategy(value) if isinstance(value, dict) else value
        for word, value in schema.items()
        if word not in (PATCH_STRATEGY, PATCH_KEY)
    }


def _scale(scale: Scale) -> Document:
    def path(steps: tuple[str, ...]) -> str:
        return "." + ".".join(steps)

    return {
        "specReplicasPath": path(scale.spec_replicas),
        "statusReplicasPath": path(scale.status_replicas),
        "labelSelectorPath": path(scale.label_selector),
    }


def has_definition(kind: Kind) -> bool:
    """Return whether a built-in kind is one that operators define elsewhere."""
    is_operators = not kind.native and kind.schemas is None
    return is_operators and kind.is_kept and kind.group.endswith("kubevirt.io")
