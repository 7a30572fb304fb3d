"""Definitions of the kinds that KubeVirt's and CDI's operators bring, and the server has by itself.

Clients look there for whether KubeVirt is installed, and in which versions.
"""

from typing import Any

from corral.api.kind import Kind, Scale, Version
from corral.api.kinds.crd.well_known import BUILT_IN, KIND
from corral.api.merge_keys import PATCH_KEY, PATCH_STRATEGY
from corral.api.object import Document
from corral.api.schema import structural

_OPERATORS = {"cdi.kubevirt.io": "cdi-operator"}


def definition_of(kind: Kind) -> Document:
    """The definition that tells of a kind of ours."""
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
    told: Document = {
        "name": version.name,
        "served": True,
        "storage": version is kind.versions[0],
        "schema": {"openAPIV3Schema": _schema(kind, version.name)},
    }
    below: Document = {"status": {}} if kind.status else {}
    if kind.scale is not None:
        below["scale"] = _scale(kind.scale)
    if below:
        told["subresources"] = below
    if version.deprecated:
        told["deprecated"] = True
    return told


def _schema(kind: Kind, version: str) -> dict[str, Any]:
    schema = dict(structural(kind, version))
    metadata = {"metadata": {"type": "object"}}
    return _unpatched({**schema, "properties": {**schema["properties"], **metadata}})


def _unpatched(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without words on strategic merge patches, which definitions do not know."""
    return {
        word: _unpatched(value) if isinstance(value, dict) else value
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


def is_told(kind: Kind) -> bool:
    """Whether a kind is one that operators bring: neither Kubernetes' own nor a user's."""
    brought = not kind.native and kind.schemas is None
    return brought and kind.is_kept and kind.group.endswith("kubevirt.io")
