"""Type checking of the expressions of ValidatingAdmissionPolicies.

A policy is accepted whatever fields its expressions select, since objects may be of any kind.  If
its rules name resources, the expressions are checked with their schemas afterwards; the warnings
are those of Kubernetes' validatingadmissionpolicy type checker.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from corral.api.cel import CelError, Program, compile_expression
from corral.api.errors import LONGEST_MESSAGE, shortened
from corral.api.kind import Kind, at
from corral.api.kinds.admissionregistration.match_rules import type_of, variable_types
from corral.api.kinds.admissionregistration.policies import variables_of
from corral.api.kinds.crd.cel_field_selections import UnknownFieldError, read_fields
from corral.api.kinds.crd.cel_rules import escaped
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.schema import structural

MOST_TYPES: Final = 10
"""The most kinds that are checked."""
MOST_CHARACTERS: Final = 128 << 10
"""The most characters of all warnings of a policy, which are stored in its status."""


class CheckedKind(NamedTuple):
    """A kind to check: its name in messages, and its schema."""

    name: str
    schema: Mapping[str, Any]


def kinds_to_check(spec: Document, kinds: KindTable) -> list[CheckedKind]:
    """Return the kinds that a policy's rules name; rules with ``*`` are skipped."""
    served, checked = _served(kinds), dict[tuple[str, str, str], CheckedKind]()
    for rule in at(spec, "matchConstraints", "resourceRules") or ():
        parts = ("apiGroups", "apiVersions", "resources")
        groups, versions, resources = (frozenset(rule.get(part) or ()) for part in parts)
        if any("*" in part for part in (groups, versions, resources)):
            continue
        for group in sorted(groups & served.keys()):
            for version, plural, kind in served[group]:
                if version in versions and plural in resources:
                    name = f"{group}/{version}, Kind={kind.name}"
                    checked[group, version, kind.name] = CheckedKind(
                        name, structural(kind, version)
                    )
                    if len(checked) == MOST_TYPES:
                        return [checked[name] for name in sorted(checked)]
    return [checked[name] for name in sorted(checked)]


def params_schema(spec: Document, kinds: KindTable) -> Mapping[str, Any] | None:
    """Return the schema of ``params``; None if its kind is not set or not served."""
    api_version, name = (at(spec, "paramKind", part) or "" for part in ("apiVersion", "kind"))
    group, _, version = api_version.rpartition("/")
    kind = kinds.by_kind(group, name)
    if kind is None or kinds.find(group, version, kind.plural) is None:
        return None
    return structural(kind, version)


def _served(kinds: KindTable) -> Mapping[str, Sequence[tuple[str, str, Kind]]]:
    """Return the served versions, plurals and kinds by group: rules may name many others."""
    served: dict[str, list[tuple[str, str, Kind]]] = {}
    for kind in kinds:
        for version in kind.versions:
            row = kinds.find(kind.group, version.name, kind.plural)
            if row is not None:
                served.setdefault(kind.group, []).append((version.name, kind.plural, row))
    return {group: sorted(rows, key=itemgetter(0, 1)) for group, rows in served.items()}


def warnings(
    spec: Document, types: Sequence[CheckedKind], params: Mapping[str, Any] | None = None
) -> Iterator[Sequence[Document]]:
    """Yield the warnings about each of a policy's validations (ExpressionWarning).

    ``params`` is the schema of the parameters, if it is known.  The caller can pause between items,
    since checking all may take long.  Warnings stop at MOST_CHARACTERS.
    """
    variables = variables_of(spec)
    policy_variables: dict[str, str] = {}
    for variable in spec.get("variables") or ():
        policy_variables[variable["name"]] = type_of(
            variable["expression"], variables, policy_variables
        )
        yield ()
    remaining = MOST_CHARACTERS
    for index, validation in enumerate(spec.get("validations") or ()):
        found = []
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            warning = (
                "\n".join(_faults(text, variables, policy_variables, types, params)) if text else ""
            )
            if warning:
                path = f"spec.validations[{index}].{field}"
                found.append({"fieldRef": path, "warning": warning})
                remaining -= len(path) + len(warning)
            if remaining <= 0:
                yield found
                return
        yield found


def _faults(
    text: str,
    variables: dict[str, str],
    policy_variables: Mapping[str, str],
    types: Sequence[CheckedKind],
    params: Mapping[str, Any] | None,
) -> Iterator[str]:
    try:
        program = compile_expression(text, variables)
        types_of_variables = variable_types(program, policy_variables)
    except CelError:
        return  # stored by a newer server
    params_schemas = {} if params is None else {"params": params}
    for each in types:
        schemas = {"object": each.schema, "oldObject": each.schema, **params_schemas}
        try:
            _require_fit(program, types_of_variables, schemas)
        except CelError as fault:
            yield f"{each.name}: compilation failed: {shortened(str(fault), LONGEST_MESSAGE)}\n"


def _require_fit(
    program: Program, variables: Mapping[int, str], schemas: Mapping[str, Mapping[str, Any]]
) -> None:
    try:
        selections = read_fields(program.tree, schemas, escaped)
    except UnknownFieldError as fault:
        raise program.fault(fault.node, fault.why) from None
    program.require_fit({**selections.types, **variables})
