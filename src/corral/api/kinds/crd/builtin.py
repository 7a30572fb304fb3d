"""CustomResourceDefinitions of built-in kinds: of KubeVirt, CDI and corral.

Clients of the embedded server look for them to find out whether KubeVirt is installed, and which
versions it serves; there they describe kinds of the table.  On a Kubernetes they define the kinds:
the same schemas, columns and subresources, and nothing of what code does (``Kind.default``,
``Kind.validate``, ``Version.read``).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from corral.api.kind import Column, Kind, Scale, Version
from corral.api.kinds.crd.well_known import BUILT_IN, KIND
from corral.api.merge_keys import PATCH_KEY, PATCH_STRATEGY
from corral.api.object import Document
from corral.api.schema import structural

_OPERATORS = {"cdi.kubevirt.io": "cdi-operator", "corral.dev": "corral"}
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_CONVERTED: Final = frozenset({"v1alpha2"})
"""Versions whose fields code converts: without conversion their manifests would lose fields."""
_UNKNOWN_FORMATS: Final = frozenset({"quantity"})
"""Formats that apiextensions-apiserver does not recognize; it warns of each."""


def definition_of(kind: Kind) -> Document:
    """Return the definition that describes a built-in kind of the embedded server."""
    definition = _definition(kind, kind.versions)
    definition["metadata"] |= {
        "labels": {MANAGED_BY: _OPERATORS.get(kind.group, "virt-operator")},
        "annotations": {BUILT_IN: "true"},
    }
    return definition


def portable_definition_of(kind: Kind) -> Document:
    """Return the definition that makes another API server serve a built-in kind."""
    return _definition(kind, [each for each in kind.versions if each.name not in _CONVERTED])


def _definition(kind: Kind, versions: Iterable[Version]) -> Document:
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
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": KIND,
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "conversion": {"strategy": "None"},
            "versions": [_version(kind, version) for version in versions],
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
        if version.warning:
            row["deprecationWarning"] = version.warning
    if columns := list(_columns(kind)):
        row["additionalPrinterColumns"] = columns
    return row


def _columns(kind: Kind) -> Iterator[Document]:
    for column in kind.columns:
        if column.json_path:
            yield _column(column)


def _column(column: Column) -> Document:
    optional = {
        "description": column.description,
        "format": column.format,
        "priority": column.priority,
    }
    present: Document = {name: value for name, value in optional.items() if value}
    return {"name": column.name, "type": column.type, "jsonPath": column.json_path, **present}


def _schema(kind: Kind, version: str) -> dict[str, Any]:
    schema = dict(structural(kind, version))
    metadata = {"metadata": {"type": "object"}}
    return _structural({**schema, "properties": {**schema["properties"], **metadata}})


def _structural(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what CRDs do not have: strategic merge patch, formats of our own."""
    return {
        word: _structural(value) if isinstance(value, dict) else value
        for word, value in schema.items()
        if word not in (PATCH_STRATEGY, PATCH_KEY)
        and not (word == "format" and isinstance(value, str) and value in _UNKNOWN_FORMATS)
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
    return is_operators and kind.is_kept and kind.group.endswith(("kubevirt.io", "corral.dev"))
