"""What is wrong with the rules of a schema themselves (``x-kubernetes-validations``)."""

from collections.abc import Iterator, Mapping
from typing import Any

from corral.api.cel import CelError
from corral.api.errors import Cause
from corral.api.kinds.causes import required
from corral.api.kinds.definitions.expressions import REASONS, RULES, Rule


def faults(path: str, schema: Mapping[str, Any]) -> Iterator[Cause]:
    """What is wrong with the rules of a schema themselves."""
    for index, told in enumerate(schema.get(RULES) or ()):
        here, rule = f"{path}[{index}]", Rule(told, schema, is_new=True)
        if not rule.text:
            yield required(f"{here}.rule", "rule is not specified")
            continue
        yield from _of_program(f"{here}.rule", rule)
        message = told.get("message", "")
        if "\n" in message.strip():
            text = f'Invalid value: "{message}": message must not contain line breaks'
            yield Cause(f"{here}.message", text)
        if told.get("messageExpression", "").strip():
            yield from _of_program(f"{here}.messageExpression", rule, is_message=True)
        reason = told.get("reason")
        if reason is not None and reason not in REASONS:
            known = ", ".join(f'"{each}"' for each in sorted(REASONS))
            text = f'Unsupported value: "{reason}": supported values: {known}'
            yield Cause(f"{here}.reason", text, "FieldValueNotSupported")


def _of_program(path: str, rule: Rule, *, is_message: bool = False) -> Iterator[Cause]:
    what, wanted = ("messageExpression", "string") if is_message else ("cel expression", "bool")
    text = rule.told["messageExpression"].strip() if is_message else rule.text
    try:
        program = rule.message_program if is_message else rule.program
    except CelError as error:
        yield Cause(path, f'Invalid value: "{text}": compilation failed: {error}')
        return
    if program is not None and program.returns not in (wanted, "dyn"):
        yield Cause(path, f'Invalid value: "{text}": {what} must evaluate to a {wanted}')
