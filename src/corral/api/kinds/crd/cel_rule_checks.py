"""Validation of the CEL rules of a schema (``x-kubernetes-validations``)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from corral.api.cel import CelError
from corral.api.errors import Cause
from corral.api.kinds.causes import forbidden, invalid, required, unsupported
from corral.api.kinds.crd.cel_rules import REASONS, RULES, CostError, Rule
from corral.api.kinds.crd.field_paths import formatted

_LINE_BREAK = re.compile(r"[\n\r]")


def check_rules(path: str, schema: Mapping[str, Any], uncorrelatable: str = "") -> Iterator[Cause]:
    """Check the rules of a schema.

    ``uncorrelatable`` is the path of a list around the schema whose new items cannot be matched
    with old ones, if there is one.
    """
    for index, declared in enumerate(schema.get(RULES) or ()):
        here, rule = f"{path}[{index}]", Rule(declared, schema, is_new=True)
        if not rule.text:
            yield required(f"{here}.rule", "rule is not specified")
            continue
        yield from _check_expression(f"{here}.rule", rule)
        yield from _check_transition(here, rule, uncorrelatable)
        yield from _check_messages(here, declared)
        if declared.get("messageExpression", "").strip():
            yield from _check_expression(f"{here}.messageExpression", rule, is_message=True)
        field = declared.get("fieldPath", "")
        if field and formatted(field, schema) is None:
            yield invalid(f"{here}.fieldPath", field, "fieldPath must be a valid path")


def _check_messages(path: str, declared: Mapping[str, Any]) -> Iterator[Cause]:
    message = declared.get("message", "")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    elif not message and _LINE_BREAK.search(declared["rule"].strip()):
        why = "message must be specified if rule contains line breaks"
        yield required(f"{path}.message", why)
    expression = declared.get("messageExpression", "")
    if expression and not expression.strip():
        why = "messageExpression must be non-empty if specified"
        yield required(f"{path}.messageExpression", why)
    reason = declared.get("reason")
    if reason is not None and reason not in REASONS:
        yield unsupported(f"{path}.reason", reason, REASONS)


def _check_transition(path: str, rule: Rule, uncorrelatable: str) -> Iterator[Cause]:
    """Check that a transition rule is where the old value can be found."""
    if rule.is_transition:
        if uncorrelatable:
            portion = f"uncorrelatable portion of the schema within {uncorrelatable}"
            fault = f"oldSelf cannot be used on the {portion}"
            yield invalid(f"{path}.rule", rule.declared["rule"], fault)
    elif "optionalOldSelf" in rule.declared:
        fault = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", rule.declared["optionalOldSelf"], fault)


def _check_expression(path: str, rule: Rule, *, is_message: bool = False) -> Iterator[Cause]:
    noun, result_type = (
        ("messageExpression", "string") if is_message else ("cel expression", "bool")
    )
    text = rule.declared["messageExpression"].strip() if is_message else rule.text
    try:
        program = rule.message_program if is_message else rule.program
    except CelError as error:
        yield Cause(path, f'Invalid value: "{text}": compilation failed: {error}')
        return
    except CostError as error:
        why = str(error)
        yield forbidden(path, why.replace("rule", "messageExpression", 1) if is_message else why)
        return
    if program is not None and program.returns not in (result_type, "dyn"):
        yield Cause(path, f'Invalid value: "{text}": {noun} must evaluate to a {result_type}')
