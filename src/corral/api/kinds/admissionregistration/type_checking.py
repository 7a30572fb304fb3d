"""What a policy's expressions have against the types of what it is about.

A policy is stored whatever it says of objects, since they may be of any kind.  Where its rules name
resources, their schemas tell which fields there are, and what types go together (Kubernetes'
validatingadmissionpolicy type checker, whose texts these are).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from corral.api.cel import CelError, Program, compile_expression
from corral.api.kind import at
from corral.api.kinds.admissionregistration.policies import variables_of
from corral.api.kinds.admissionregistration.rules import type_of, variable_types
from corral.api.kinds.definitions.expressions import escaped
from corral.api.kinds.definitions.selections import UnknownFieldError, read_fields
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.schema import structural

MOST_TYPES: Final = 10
"""Kinds that are looked at."""


class Checked(NamedTuple):
    """A kind as messages name it, and its schema."""

    name: str
    schema: Mapping[str, Any]


def checked(spec: Document, kinds: KindTable) -> list[Checked]:
    """The kinds that a policy's rules name; what they ask for with ``*`` is anything."""
    found: dict[tuple[str, str, str], Checked] = {}
    for rule in at(spec, "matchConstraints", "resourceRules") or ():
        told = [sorted(rule.get(f"{part}s") or ()) for part in ("apiGroup", "apiVersion")]
        resources = sorted(each for each in rule.get("resources") or () if "/" not in each)
        for group, version, plural in product(*_named(*told, resources)):
            kind = kinds.find(group, version, plural)
            if kind is not None and len(found) < MOST_TYPES:
                name = f"{group}/{version}, Kind={kind.name}"
                found[group, version, kind.name] = Checked(name, structural(kind, version))
    return [found[name] for name in sorted(found)]


def _named(*parts: Sequence[str]) -> Sequence[Sequence[str]]:
    return parts if not any("*" in part for part in parts) else ((), (), ())


def warnings(spec: Document, types: Sequence[Checked]) -> list[Document]:
    """What there is against a policy's validations (ExpressionWarning)."""
    known = variables_of(spec)
    made: dict[str, str] = {}
    for variable in spec.get("variables") or ():
        made[variable["name"]] = type_of(variable["expression"], known, made)
    told = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            faults = [*_faults(text, known, made, types)] if text else []
            if faults:
                path = f"spec.validations[{index}].{field}"
                told.append({"fieldRef": path, "warning": "\n".join(faults)})
    return told


def _faults(
    text: str, known: dict[str, str], made: Mapping[str, str], types: Sequence[Checked]
) -> Iterator[str]:
    try:
        program = compile_expression(text, known)
        variables = variable_types(program, made)
    except CelError:
        return  # it was stored by a server that knew more
    for each in types:
        try:
            _require_fit(program, variables, each.schema)
        except CelError as fault:
            yield f"{each.name}: compilation failed: {fault}\n"


def _require_fit(program: Program, variables: Mapping[int, str], schema: Mapping[str, Any]) -> None:
    try:
        found = read_fields(program.tree, {"object": schema, "oldObject": schema}, escaped)
    except UnknownFieldError as fault:
        raise program.fault(fault.node, fault.why) from None
    program.require_fit({**found.types, **variables})
