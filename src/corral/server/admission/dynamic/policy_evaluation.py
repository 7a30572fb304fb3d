"""What a ValidatingAdmissionPolicy says of an object: which of its rules are broken, and how.

Texts are those of Kubernetes (its validating policy plugin).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from corral.api.cel import CelError, Program
from corral.api.kinds.admissionregistration.match_rules import IGNORE
from corral.api.kinds.admissionregistration.policies import (
    LONGEST_ANNOTATION,
    variables_of,
    without_authorizer,
)
from corral.api.object import Document
from corral.server.admission.dynamic.match_conditions import (
    ConditionError,
    Conditions,
    compiled,
    run,
)
from corral.server.admission.dynamic.matching import Selection

_USED = re.compile(r"\bvariables\s*\.\s*([_a-zA-Z][_a-zA-Z0-9]*)", re.ASCII)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Something that has to hold; how its breach is told, and as what."""

    program: Program | CelError
    telling: Program | CelError | None
    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, ready to be asked; ``variables`` are by name, in the order of their making."""

    name: str
    selection: Selection
    conditions: Conditions
    variables: Mapping[str, Program | CelError]
    rules: Sequence[Rule]
    annotations: Mapping[str, Program | CelError]
    params: Document | None
    fails_open: bool


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that an act does not keep, or that nobody can tell of."""

    message: str
    reason: str = "Invalid"


def read_policy(document: Document) -> Policy:
    """Reads a ValidatingAdmissionPolicy that is valid."""
    spec = document["spec"]
    known = variables_of(spec)
    return Policy(
        name=document["metadata"]["name"],
        selection=Selection.of(spec["matchConstraints"], "resourceRules", "excludeResourceRules"),
        conditions=Conditions.of(spec.get("matchConditions"), known),
        variables={
            each["name"]: compiled(each["expression"], known)
            for each in spec.get("variables") or ()
        },
        rules=[_rule(each, known) for each in spec.get("validations") or ()],
        annotations={
            each["key"]: compiled(each["valueExpression"], known)
            for each in spec.get("auditAnnotations") or ()
        },
        params=spec.get("paramKind"),
        fails_open=spec.get("failurePolicy") == IGNORE,
    )


def _rule(document: Document, known: Mapping[str, str]) -> Rule:
    expression, telling = document["expression"], document.get("messageExpression")
    return Rule(
        program=compiled(expression, known),
        telling=compiled(telling, without_authorizer(known)) if telling else None,
        message=(document.get("message") or f"failed expression: {expression}").strip(),
        reason=document.get("reason") or "Invalid",
    )


def judged(
    policy: Policy, given: dict[str, Any], note: Callable[[str, str], None]
) -> Iterator[Breach]:
    """The breaches of a policy by what is given to its expressions.

    ``note`` gets what the policy wants to be in the audit log.
    """
    given = {**given, "variables": {}}
    try:
        if not policy.conditions.hold(given):
            return
    except ConditionError as error:
        if not policy.fails_open:
            yield Breach(str(error))
        return
    broken = _filled(policy, given)
    for rule in policy.rules:
        breach = _breach(rule, given, broken, fails_open=policy.fails_open)
        if breach is not None:
            yield breach
    try:
        for key, program in policy.annotations.items():
            noted = run(program, given)
            if isinstance(noted, str) and noted.strip():
                note(f"{policy.name}/{key}", noted.strip())
    except CelError as error:
        if not policy.fails_open:
            yield Breach(_composed(str(error), broken))


def _breach(
    rule: Rule, given: dict[str, Any], broken: Mapping[str, str], *, fails_open: bool
) -> Breach | None:
    """How a rule is broken, if it is."""
    try:
        holds = run(rule.program, given)
    except CelError as error:
        return None if fails_open else Breach(_composed(str(error), broken))
    return None if holds is True else Breach(_told(rule, given), rule.reason)


def _filled(policy: Policy, given: dict[str, Any]) -> dict[str, str]:
    """Give the variables of a policy their values; answers why those have none that have none.

    One without a value is left out: that is only a fault where somebody looks at it.
    """
    broken: dict[str, str] = {}
    for name, program in policy.variables.items():
        try:
            given["variables"][name] = run(program, given)
        except CelError as error:
            broken[name] = _composed(str(error), broken)
    return broken


def _composed(message: str, broken: Mapping[str, str]) -> str:
    """Why an expression has no value, be it for want of a variable's."""
    for name in _USED.findall(message):
        if name in broken and message.endswith(f"no such key: {name}"):
            return f'composited variable "{name}" fails to evaluate: {broken[name]}'
    return message


def _told(rule: Rule, given: Mapping[str, Any]) -> str:
    """How a breach is told: by the rule's own expression, if that has a value that can be shown."""
    if rule.telling is None:
        return rule.message
    try:
        said = run(rule.telling, given)
    except CelError as error:
        log.info("messageExpression has no value", why=str(error))
        return rule.message
    fits = isinstance(said, str) and len(said) <= LONGEST_ANNOTATION and "\n" not in said.strip()
    return said.strip() or rule.message if fits else rule.message
