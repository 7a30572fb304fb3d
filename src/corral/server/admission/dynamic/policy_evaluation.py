"""Evaluation of a ValidatingAdmissionPolicy: the violations of its rules.

Messages are those of Kubernetes' validating policy plugin.
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
    MatchConditions,
    compile_or_error,
    evaluate,
)
from corral.server.admission.dynamic.matching import Selection

_USED = re.compile(r"\bvariables\s*\.\s*([_a-zA-Z][_a-zA-Z0-9]*)", re.ASCII)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A validation of a policy, with the message and reason of its violation."""

    program: Program | CelError
    message_expression: Program | CelError | None
    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A compiled policy; ``variables`` are in the order of their evaluation."""

    name: str
    selection: Selection
    conditions: MatchConditions
    variables: Mapping[str, Program | CelError]
    rules: Sequence[Rule]
    annotations: Mapping[str, Program | CelError]
    params: Document | None
    fails_open: bool


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that is violated, or whose evaluation failed."""

    message: str
    reason: str = "Invalid"


def read_policy(document: Document) -> Policy:
    """Parse a valid ValidatingAdmissionPolicy."""
    spec = document["spec"]
    declarations = variables_of(spec)
    return Policy(
        name=document["metadata"]["name"],
        selection=Selection.of(spec["matchConstraints"], "resourceRules", "excludeResourceRules"),
        conditions=MatchConditions.of(spec.get("matchConditions"), declarations),
        variables={
            each["name"]: compile_or_error(each["expression"], declarations)
            for each in spec.get("variables") or ()
        },
        rules=[_rule(each, declarations) for each in spec.get("validations") or ()],
        annotations={
            each["key"]: compile_or_error(each["valueExpression"], declarations)
            for each in spec.get("auditAnnotations") or ()
        },
        params=spec.get("paramKind"),
        fails_open=spec.get("failurePolicy") == IGNORE,
    )


def _rule(document: Document, declarations: Mapping[str, str]) -> Rule:
    expression, message_expression = document["expression"], document.get("messageExpression")
    return Rule(
        program=compile_or_error(expression, declarations),
        message_expression=compile_or_error(message_expression, without_authorizer(declarations))
        if message_expression
        else None,
        message=(document.get("message") or f"failed expression: {expression}").strip(),
        reason=document.get("reason") or "Invalid",
    )


def evaluate_policy(
    policy: Policy, variables: dict[str, Any], annotate: Callable[[str, str], None]
) -> Iterator[Violation]:
    """Evaluate a policy with the variables of its expressions; yield the violations.

    ``annotate`` is called with the policy's audit annotations.
    """
    variables = {**variables, "variables": {}}
    try:
        if not policy.conditions.match(variables):
            return
    except ConditionError as error:
        if not policy.fails_open:
            yield Violation(str(error))
        return
    failed_variables = _evaluate_variables(policy, variables)
    for rule in policy.rules:
        violation = _violation(rule, variables, failed_variables, fails_open=policy.fails_open)
        if violation is not None:
            yield violation
    try:
        for key, program in policy.annotations.items():
            annotation = evaluate(program, variables)
            if isinstance(annotation, str) and annotation.strip():
                annotate(f"{policy.name}/{key}", annotation.strip())
    except CelError as error:
        if not policy.fails_open:
            yield Violation(_compose_error(str(error), failed_variables))


def _violation(
    rule: Rule, variables: dict[str, Any], failed_variables: Mapping[str, str], *, fails_open: bool
) -> Violation | None:
    """Return the violation of a rule, or None."""
    try:
        result = evaluate(rule.program, variables)
    except CelError as error:
        return None if fails_open else Violation(_compose_error(str(error), failed_variables))
    return None if result is True else Violation(_message(rule, variables), rule.reason)


def _evaluate_variables(policy: Policy, variables: dict[str, Any]) -> dict[str, str]:
    """Evaluate the policy's variables into ``variables``; return the errors of those that failed.

    A failed variable is left out: that is an error only in expressions that use it.
    """
    failed_variables: dict[str, str] = {}
    for name, program in policy.variables.items():
        try:
            variables["variables"][name] = evaluate(program, variables)
        except CelError as error:
            failed_variables[name] = _compose_error(str(error), failed_variables)
    return failed_variables


def _compose_error(message: str, failed_variables: Mapping[str, str]) -> str:
    """Return an expression's error, with the error of a failed variable that it uses."""
    for name in _USED.findall(message):
        if name in failed_variables and message.endswith(f"no such key: {name}"):
            return f'composited variable "{name}" fails to evaluate: {failed_variables[name]}'
    return message


def _message(rule: Rule, variables: Mapping[str, Any]) -> str:
    """Return a violation's message: of the rule's messageExpression, if its value is valid."""
    if rule.message_expression is None:
        return rule.message
    try:
        message = evaluate(rule.message_expression, variables)
    except CelError as error:
        log.info("messageExpression failed", error=str(error))
        return rule.message
    fits = (
        isinstance(message, str)
        and len(message) <= LONGEST_ANNOTATION
        and "\n" not in message.strip()
    )
    return message.strip() or rule.message if fits else rule.message
