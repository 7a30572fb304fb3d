"""What is wrong with the rules of a schema themselves (``x-kubernetes-validations``)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from corral.api.cel import CelError
from corral.api.errors import Cause
from corral.api.kinds.causes import forbidden, invalid, required, unsupported
from corral.api.kinds.crd.cel_rules import REASONS, RULES, CostError, Rule
from corral.api.kinds.crd.field_paths import normal

_LINE_BREAK = re.compile(r"[\n\r]")


def faults(path: str, schema: Mapping[str, Any], apart: str = "") -> Iterator[Cause]:
    """What is wrong with the rules of a schema themselves.

    ``apart`` is the path of the list in which they stand, where nobody knows which of its items
    was which.
    """
    for index, told in enumerate(schema.get(RULES) or ()):
        here, rule = f"{path}[{index}]", Rule(told, schema, is_new=True)
        if not rule.text:
            yield required(f"{here}.rule", "rule is not specified")
            continue
        yield from _of_program(f"{here}.rule", rule)
        yield from _of_old(here, rule, apart)
        yield from _of_words(here, told)
        if told.get("messageExpression", "").strip():
            yield from _of_program(f"{here}.messageExpression", rule, is_message=True)
        field = told.get("fieldPath", "")
        if field and normal(field, schema) is None:
            yield invalid(f"{here}.fieldPath", field, "fieldPath must be a valid path")


def _of_words(path: str, told: Mapping[str, Any]) -> Iterator[Cause]:
    message = told.get("message", "")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    elif not message and _LINE_BREAK.search(told["rule"].strip()):
        why = "message must be specified if rule contains line breaks"
        yield required(f"{path}.message", why)
    expression = told.get("messageExpression", "")
    if expression and not expression.strip():
        why = "messageExpression must be non-empty if specified"
        yield required(f"{path}.messageExpression", why)
    reason = told.get("reason")
    if reason is not None and reason not in REASONS:
        yield unsupported(f"{path}.reason", reason, REASONS)


def _of_old(path: str, rule: Rule, apart: str) -> Iterator[Cause]:
    """Who speaks of what was has to stand where that is known."""
    if rule.is_transition:
        if apart:
            fault = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}"
            )
            yield invalid(f"{path}.rule", rule.told["rule"], fault)
    elif "optionalOldSelf" in rule.told:
        fault = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", rule.told["optionalOldSelf"], fault)


def _of_program(path: str, rule: Rule, *, is_message: bool = False) -> Iterator[Cause]:
    what, wanted = ("messageExpression", "string") if is_message else ("cel expression", "bool")
    text = rule.told["messageExpression"].strip() if is_message else rule.text
    try:
        program = rule.message_program if is_message else rule.program
    except CelError as error:
        yield Cause(path, f'Invalid value: "{text}": compilation failed: {error}')
        return
    except CostError as error:
        told = str(error)
        yield forbidden(path, told.replace("rule", "messageExpression", 1) if is_message else told)
        return
    if program is not None and program.returns not in (wanted, "dyn"):
        yield Cause(path, f'Invalid value: "{text}": {what} must evaluate to a {wanted}')
