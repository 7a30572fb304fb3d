"""What a policy's expressions have against the types of what it is about.

A policy is stored whatever it says of objects, since they may be of any kind.  Where its rules name
resources, their schemas tell which fields there are, and what types go together (Kubernetes'
validatingadmissionpolicy type checker, whose texts these are).
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
"""Kinds that are looked at."""
MOST_CHARACTERS: Final = 128 << 10
"""Of all that is told of one policy: it is kept in the policy, beside what that says itself."""


class Checked(NamedTuple):
    """A kind as messages name it, and its schema."""

    name: str
    schema: Mapping[str, Any]


def checked(spec: Document, kinds: KindTable) -> list[Checked]:
    """The kinds that a policy's rules name; what they ask for with ``*`` is anything."""
    served, found = _served(kinds), dict[tuple[str, str, str], Checked]()
    for rule in at(spec, "matchConstraints", "resourceRules") or ():
        parts = ("apiGroups", "apiVersions", "resources")
        groups, versions, resources = (frozenset(rule.get(part) or ()) for part in parts)
        if any("*" in part for part in (groups, versions, resources)):
            continue
        for group in sorted(groups & served.keys()):
            for version, plural, kind in served[group]:
                if version in versions and plural in resources:
                    name = f"{group}/{version}, Kind={kind.name}"
                    found[group, version, kind.name] = Checked(name, structural(kind, version))
                    if len(found) == MOST_TYPES:
                        return [found[name] for name in sorted(found)]
    return [found[name] for name in sorted(found)]


def params_schema(spec: Document, kinds: KindTable) -> Mapping[str, Any] | None:
    """Return the schema of ``params``; None where no kind that is served is named."""
    api_version, name = (at(spec, "paramKind", part) or "" for part in ("apiVersion", "kind"))
    group, _, version = api_version.rpartition("/")
    kind = kinds.by_kind(group, name)
    if kind is None or kinds.find(group, version, kind.plural) is None:
        return None
    return structural(kind, version)


def _served(kinds: KindTable) -> Mapping[str, Sequence[tuple[str, str, Kind]]]:
    """The versions, plurals and kinds of each group: a rule may name much that there is not."""
    served: dict[str, list[tuple[str, str, Kind]]] = {}
    for kind in kinds:
        for version in kind.versions:
            found = kinds.find(kind.group, version.name, kind.plural)
            if found is not None:
                served.setdefault(kind.group, []).append((version.name, kind.plural, found))
    return {group: sorted(found, key=itemgetter(0, 1)) for group, found in served.items()}


def warnings(
    spec: Document, types: Sequence[Checked], params: Mapping[str, Any] | None = None
) -> Iterator[Sequence[Document]]:
    """What there is against each of a policy's validations (ExpressionWarning).

    ``params`` is the schema of parameters, if it is known.  They are looked at one by one: all of
    them may take long.  What is against many is cut.
    """
    known = variables_of(spec)
    made: dict[str, str] = {}
    for variable in spec.get("variables") or ():
        made[variable["name"]] = type_of(variable["expression"], known, made)
        yield ()
    room = MOST_CHARACTERS
    for index, validation in enumerate(spec.get("validations") or ()):
        told = []
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            warning = "\n".join(_faults(text, known, made, types, params)) if text else ""
            if warning:
                path = f"spec.validations[{index}].{field}"
                told.append({"fieldRef": path, "warning": warning})
                room -= len(path) + len(warning)
            if room <= 0:
                yield told
                return
        yield told


def _faults(
    text: str,
    known: dict[str, str],
    made: Mapping[str, str],
    types: Sequence[Checked],
    params: Mapping[str, Any] | None,
) -> Iterator[str]:
    try:
        program = compile_expression(text, known)
        variables = variable_types(program, made)
    except CelError:
        return  # it was stored by a server that knew more
    of_params = {} if params is None else {"params": params}
    for each in types:
        schemas = {"object": each.schema, "oldObject": each.schema, **of_params}
        try:
            _require_fit(program, variables, schemas)
        except CelError as fault:
            yield f"{each.name}: compilation failed: {shortened(str(fault), LONGEST_MESSAGE)}\n"


def _require_fit(
    program: Program, variables: Mapping[int, str], schemas: Mapping[str, Mapping[str, Any]]
) -> None:
    try:
        found = read_fields(program.tree, schemas, escaped)
    except UnknownFieldError as fault:
        raise program.fault(fault.node, fault.why) from None
    program.require_fit({**found.types, **variables})
