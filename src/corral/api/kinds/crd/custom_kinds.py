"""Custom kinds: the rows of the table of kinds, made from CustomResourceDefinitions.  No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar

from corral.api.conditions import is_condition_true
from corral.api.errors import limited
from corral.api.kind import Kind, Scale, Verdict, Version
from corral.api.kinds.crd.cel_rules import Rules
from corral.api.kinds.crd.embedded_resources import Embedded
from corral.api.kinds.crd.jsonpath import compile_path, simple_path
from corral.api.kinds.crd.list_types import Uniqueness
from corral.api.kinds.crd.normalization import normalized
from corral.api.kinds.crd.printer_columns import columns_of
from corral.api.kinds.crd.well_known import ESTABLISHED, TERMINATING
from corral.api.object import Document, Object
from corral.api.schema import Schemas
from corral.api.schema.ratcheting import introduced


class CustomObject(Object, kw_only=True):
    """The view of a custom resource; its fields are in the schema of its definition only."""

    api_version: ClassVar[str] = ""
    kind: ClassVar[str] = ""


def kind_of(definition: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a definition; None if it is not established, hence not served."""
    if not is_condition_true(definition, ESTABLISHED):
        return None
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    versions: list[Document] = sorted(spec["versions"], key=lambda each: not each["storage"])
    if not any(version["served"] for version in versions):
        return None
    schemas = Schemas({each["name"]: normalized(_schema(each)) for each in versions})
    write = None
    if definition["metadata"].get("generation", 1) > 1:  # stored with an earlier schema
        write = partial(_upgrade, schemas, versions[0]["name"])
    base = Kind(
        group=spec["group"],
        name=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        short=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        namespaced=spec["scope"] == "Namespaced",
        view=CustomObject,
        versions=tuple(_version(spec, each, write) for each in versions),
        schemas=schemas,
        closing=is_condition_true(definition, TERMINATING),
        list_name=names.get("listKind", ""),
    )
    rows = {
        each["name"]: _row(base, each, schemas[each["name"]]) for each in versions if each["served"]
    }
    return replace(_row(base, versions[0], schemas[base.version]), rows=rows)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _upgrade(schemas: Schemas, stored: str, document: Document) -> None:
    """Prune and default a stored document by the present schema of its version."""
    _group, _, version = document.get("apiVersion", stored).rpartition("/")
    schema = schemas.compiled(version if version in schemas else stored)
    schema.prune(document)
    schema.complete(document)


def _version(
    spec: Mapping[str, Any], version: Mapping[str, Any], write: Callable[[Document], None] | None
) -> Version:
    default = f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
    warning = version.get("deprecationWarning") or default
    return Version(
        name=version["name"],
        served=version["served"],
        deprecated=version.get("deprecated", False),
        warning=warning,
        write=write,
    )


def _row(base: Kind, version: Mapping[str, Any], schema: Mapping[str, Any]) -> Kind:
    """Return the row of one version: columns and subresources may differ."""
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    fields = [each["jsonPath"] for each in version.get("selectableFields", ())]
    return replace(
        base,
        status="status" in subresources,
        scale=_scale(scale) if scale is not None else None,
        columns=columns_of(version),
        selectable={path.removeprefix("."): _selectable(path) for path in fields},
        validate=_Validation(schema).verdict,
    )


class _Validation:
    """Checks of a schema beyond types: list types, embedded resources, CEL rules.  Made lazily."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self._schema)

    @cached_property
    def _lists(self) -> Uniqueness:
        return Uniqueness(self._schema)

    @cached_property
    def _embedded(self) -> Embedded:
        return Embedded(self._schema)

    def verdict(self, document: Document, old: Document | None, _user: str) -> Verdict:
        """Validate a document; unchanged invalid values pass on updates (ratcheting)."""
        repeated = self._lists.check(document) if self._lists else iter(())
        causes = limited(chain(repeated, self._embedded.check(document) if self._embedded else ()))
        if old is not None:
            causes = introduced(causes, document, old, self._schema)
        broken, warnings = self._rules.check(document, old) if self._rules else ([], [])
        return Verdict([*causes, *broken], warnings)


def _scale(declared: Mapping[str, Any]) -> Scale:
    selector = declared.get("labelSelectorPath")
    return Scale(
        spec_replicas=simple_path(declared["specReplicasPath"]),
        status_replicas=simple_path(declared["statusReplicasPath"]),
        label_selector=simple_path(selector) if selector else (),
    )


def _selectable(path: str) -> Callable[[Document], str]:
    find = compile_path(path).find

    def read(document: Document) -> str:
        values = find(document)[:1]
        if not values or values[0] is None:
            return ""
        value = values[0]
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read
