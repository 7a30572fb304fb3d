"""Validation of CustomResourceDefinitions (apiextensions-apiserver's validation)."""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import forbidden, invalid, required, too_many, unsupported
from corral.api.kinds.crd import lifecycle, structural
from corral.api.kinds.crd.jsonpath import PathError, compile_path, simple_path
from corral.api.kinds.crd.well_known import (
    APPROVED,
    BUILT_IN,
    BYPASSED,
    CONTROLLER_USER,
    is_built_in,
    is_protected,
)
from corral.api.names import service_name_faults, subdomain_faults
from corral.api.object import Document

_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    *("byte", "date", "date-time", "double", "float", "int32", "int64", "password"),
)
_LONGEST_WARNING: Final = 256
MOST_SELECTABLE: Final = 8


def validate(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a definition beyond its schema."""
    if user != CONTROLLER_USER and (
        is_built_in(document) or (old is not None and is_built_in(old))
    ):
        why = "it defines a built-in kind of corral, and cannot be changed"
        was_built_in = old is not None and is_built_in(old)
        field = "metadata.name" if was_built_in else f"metadata.annotations[{BUILT_IN}]"
        return Verdict([forbidden(field, why)])
    if is_built_in(document):
        return Verdict()
    causes = limited(
        [*_check_name(document), *_check_spec(document, old), *_check_status(document)]
    )
    if old is not None:
        causes += lifecycle.check_update(document, old)
    return Verdict(causes)


def _check_name(document: Document) -> Iterator[Cause]:
    spec, name = document["spec"], document["metadata"]["name"]
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_spec(document: Document, old: Document | None) -> Iterator[Cause]:
    spec = document["spec"]
    stored = old["spec"]["versions"] if old is not None else ()
    yield from _check_group(document, spec["group"])
    if spec["scope"] not in _SCOPES:
        yield unsupported("spec.scope", spec["scope"], _SCOPES)
    yield from _check_versions(spec["versions"])
    for index, version in enumerate(spec["versions"]):
        if version not in stored:  # unchanged versions are skipped: rules are slow to check
            yield from _check_version(f"spec.versions[{index}]", version)
    yield from _check_names("spec.names", spec["names"])
    yield from _check_conversion(spec["conversion"])
    if spec.get("preserveUnknownFields"):
        why = "must be false in order to use defaults in the schema"
        yield invalid("spec.preserveUnknownFields", value=True, fault=why)


def _check_group(document: Document, group: str) -> Iterator[Cause]:
    if not group:
        yield required("spec.group")
    elif faults := subdomain_faults(group):
        yield invalid("spec.group", group, ",".join(faults))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    elif is_protected(group):
        approval = (at(document, "metadata", "annotations") or {}).get(APPROVED, "")
        path = f"metadata.annotations[{APPROVED}]"
        if not approval:
            why = (
                "protected groups must have approval annotation "
                f'"{APPROVED}", see https://github.com/kubernetes/enhancements/pull/1111'
            )
            yield required(path, why)
        elif not approval.startswith(("https://", "http://", BYPASSED)):
            why = (
                "protected groups must have approval annotation "
                f'"{APPROVED}" with either a URL or a reason starting with "unapproved", '
                "see https://github.com/kubernetes/enhancements/pull/1111"
            )
            yield invalid(path, approval, why)


def _check_versions(versions: list[Document]) -> Iterator[Cause]:
    names = [version["name"] for version in versions]
    for index, name in enumerate(names):
        if faults := service_name_faults(name):
            yield invalid(f"spec.versions[{index}].name", name, ",".join(faults))
    if len(set(names)) < len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(version["storage"] for version in versions) != 1:
        fault = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", names, fault)


def _check_version(path: str, version: Document) -> Iterator[Cause]:
    warning = version.get("deprecationWarning")
    if warning is not None:
        if not version.get("deprecated"):
            yield invalid(
                f"{path}.deprecationWarning", warning, "can only be set for deprecated versions"
            )
        elif not warning or not warning.isprintable():
            fault = "must only contain printable UTF-8 characters; non-printable characters found"
            yield invalid(f"{path}.deprecationWarning", warning, fault)
        elif len(warning) > _LONGEST_WARNING:
            fault = f"must be {_LONGEST_WARNING} characters or less"
            yield invalid(f"{path}.deprecationWarning", warning, fault)
    schema = at(version, "schema", "openAPIV3Schema")
    if schema is None:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        yield from structural.check(f"{path}.schema.openAPIV3Schema", schema)
    yield from _check_subresources(f"{path}.subresources", version.get("subresources") or {})
    for index, column in enumerate(version.get("additionalPrinterColumns", ())):
        yield from _check_column(f"{path}.additionalPrinterColumns[{index}]", column)
    fields = version.get("selectableFields", ())
    yield from _check_selectable(f"{path}.selectableFields", fields, schema or {})


def _check_subresources(path: str, subresources: Document) -> Iterator[Cause]:
    scale = subresources.get("scale")
    if scale is None:
        return
    yield from _check_scale_path(
        f"{path}.scale.specReplicasPath", scale["specReplicasPath"], "spec"
    )
    yield from _check_scale_path(
        f"{path}.scale.statusReplicasPath", scale["statusReplicasPath"], "status"
    )
    if selector := scale.get("labelSelectorPath"):
        yield from _check_scale_path(f"{path}.scale.labelSelectorPath", selector, "status", "spec")


def _check_scale_path(path: str, value: str, *heads: str) -> Iterator[Cause]:
    if not value:
        yield required(path)
        return
    try:
        names = simple_path(value)
    except PathError as error:
        yield invalid(path, value, str(error))
        return
    if names[0] not in heads or len(names) < 2:
        under = " or ".join(f".{head}" for head in heads)
        yield invalid(path, value, f"should be a json path under {under}")


def _check_column(path: str, column: Document) -> Iterator[Cause]:
    if not column["name"]:
        yield required(f"{path}.name")
    if not column["type"]:
        listed = ", ".join(sorted(_COLUMN_TYPES))
        yield required(f"{path}.type", f"must be one of {listed}")
    elif column["type"] not in _COLUMN_TYPES:
        listed = ",".join(sorted(_COLUMN_TYPES))
        yield invalid(f"{path}.type", column["type"], f"must be one of {listed}")
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        listed = ",".join(sorted(_COLUMN_FORMATS))
        yield invalid(f"{path}.format", column["format"], f"must be one of {listed}")
    if not column["jsonPath"]:
        yield required(f"{path}.jsonPath")
        return
    try:
        compile_path(column["jsonPath"])
    except PathError as error:
        yield invalid(f"{path}.jsonPath", column["jsonPath"], str(error))


def _check_selectable(path: str, fields: list[Document], schema: Document) -> Iterator[Cause]:
    if len(fields) > MOST_SELECTABLE:
        yield too_many(path, len(fields), MOST_SELECTABLE)
    seen = set()
    for index, each in enumerate(fields):
        here, json_path = f"{path}[{index}].jsonPath", each["jsonPath"]
        if not json_path:
            yield required(here)
            continue
        try:
            names = simple_path(json_path)
        except PathError as error:
            yield invalid(here, json_path, f"is an invalid path: {error}")
            continue
        if names[0] in ("metadata", "apiVersion", "kind"):
            yield invalid(here, json_path, "must not point to fields in metadata")
        elif (field_schema := structural.field_at(schema, names)) is None:
            yield invalid(here, json_path, "is an invalid path: does not refer to a valid field")
        elif field_schema.get("type") not in ("string", "integer", "boolean"):
            why = "must point to a field of type string, boolean or integer. "
            why += "Enum string fields and strings with formats are allowed."
            yield invalid(here, json_path, why)
        if json_path in seen:
            yield Cause(here, f'Duplicate value: "{json_path}"', "FieldValueDuplicate")
        seen.add(json_path)


def _check_names(path: str, names: Document) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required(f"{path}.{field}")
        else:
            yield from _check_label(f"{path}.{field}", names[field], mixed="ind" in field)
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field, ())):
            yield from _check_label(f"{path}.{field}[{index}]", value)
    if names["kind"] and names["kind"] == names.get("listKind"):
        fault = "kind and listKind may not be the same"
        yield invalid(f"{path}.listKind", names["listKind"], fault)


def _check_label(path: str, value: str, *, mixed: bool = False) -> Iterator[Cause]:
    """Check that a name is a DNS label; that of a kind may have capitals."""
    faults = service_name_faults(value.lower() if mixed else value)
    if faults:
        prefix = "may have mixed case, but should otherwise match: " if mixed else ""
        yield invalid(path, value, prefix + ",".join(faults))


def _check_conversion(conversion: Document) -> Iterator[Cause]:
    strategy = conversion["strategy"]
    if strategy == "Webhook":
        why = (
            "corral converts between versions by their apiVersion alone: set the strategy to None, "
            "and give the versions schemas that fit each other"
        )
        yield forbidden("spec.conversion.strategy", why)
    elif strategy != "None":
        yield unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    elif conversion.get("webhook") is not None:
        yield forbidden(
            "spec.conversion.webhook", "should not be set when strategy is not set to Webhook"
        )


def _check_status(document: Document) -> Iterator[Cause]:
    stored = at(document, "status", "storedVersions")
    if stored is None or document["metadata"].get("deletionTimestamp"):
        return
    if not stored:
        yield invalid("status.storedVersions", stored, "must have at least one stored version")
