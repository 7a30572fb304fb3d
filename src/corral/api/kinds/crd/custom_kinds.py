"""From a definition to the rows of the table of kinds that it stands for (pure)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar

from corral.api.errors import limited
from corral.api.kind import Kind, Scale, Verdict, Version
from corral.api.kinds.crd.cel_rules import Rules
from corral.api.kinds.crd.embedded_resources import Embedded
from corral.api.kinds.crd.jsonpath import compile_path, simple_path
from corral.api.kinds.crd.list_types import Uniqueness
from corral.api.kinds.crd.normalization import normal
from corral.api.kinds.crd.printer_columns import columns_of
from corral.api.kinds.crd.well_known import ESTABLISHED, TERMINATING, holds
from corral.api.object import Document, Object
from corral.api.schema import Schemas
from corral.api.schema.ratcheting import introduced


class CustomObject(Object, kw_only=True):
    """The view of an object of which only its definition knows what it holds."""

    api_version: ClassVar[str] = ""
    kind: ClassVar[str] = ""


def kind_of(definition: Mapping[str, Any]) -> Kind | None:
    """The kind that a definition brings; None where it is not established, hence not served."""
    if not holds(definition, ESTABLISHED):
        return None
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    versions: list[Document] = sorted(spec["versions"], key=lambda each: not each["storage"])
    if not any(version["served"] for version in versions):
        return None
    schemas = Schemas({each["name"]: normal(_schema(each)) for each in versions})
    write = None
    if definition["metadata"].get("generation", 1) > 1:  # some may lie there in an earlier form
        write = partial(_renew, schemas, versions[0]["name"])
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
        closing=holds(definition, TERMINATING),
        list_name=names.get("listKind", ""),
    )
    rows = {
        each["name"]: _row(base, each, schemas[each["name"]]) for each in versions if each["served"]
    }
    return replace(_row(base, versions[0], schemas[base.version]), rows=rows)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _renew(schemas: Schemas, stored: str, document: Document) -> None:
    """Prune and complete a document as if it were stored today, in the version that it lies in."""
    _group, _, version = document.get("apiVersion", stored).rpartition("/")
    schema = schemas.compiled(version if version in schemas else stored)
    schema.prune(document)
    schema.complete(document)


def _version(
    spec: Mapping[str, Any], version: Mapping[str, Any], write: Callable[[Document], None] | None
) -> Version:
    usual = f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
    warning = version.get("deprecationWarning") or usual
    return Version(
        name=version["name"],
        served=version["served"],
        deprecated=version.get("deprecated", False),
        warning=warning,
        write=write,
    )


def _row(base: Kind, version: Mapping[str, Any], schema: Mapping[str, Any]) -> Kind:
    """The kind as one of its versions has it: columns and subresources may differ."""
    below = version.get("subresources") or {}
    scale = below.get("scale")
    fields = [each["jsonPath"] for each in version.get("selectableFields", ())]
    return replace(
        base,
        status="status" in below,
        scale=_scale(scale) if scale is not None else None,
        columns=columns_of(version),
        selectable={path.removeprefix("."): _selectable(path) for path in fields},
        validate=_Further(schema).verdict,
    )


class _Further:
    """What a schema asks of documents beside their form; looked up when there is one to check."""

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
        """What is wrong beyond the schema; what was so before is let be, with a warning."""
        found = self._lists.check(document) if self._lists else iter(())
        causes = limited(chain(found, self._embedded.check(document) if self._embedded else ()))
        if old is not None:
            causes = introduced(causes, document, old, self._schema)
        broken, warnings = self._rules.check(document, old) if self._rules else ([], [])
        return Verdict([*causes, *broken], warnings)


def _scale(told: Mapping[str, Any]) -> Scale:
    selector = told.get("labelSelectorPath")
    return Scale(
        spec_replicas=simple_path(told["specReplicasPath"]),
        status_replicas=simple_path(told["statusReplicasPath"]),
        label_selector=simple_path(selector) if selector else (),
    )


def _selectable(path: str) -> Callable[[Document], str]:
    find = compile_path(path).find

    def read(document: Document) -> str:
        found = find(document)[:1]
        if not found or found[0] is None:
            return ""
        value = found[0]
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read
