"""``x-kubernetes-validations``: CEL rules of a schema, evaluated on documents."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from corral.api.cel import CelError, Program, compile_expression, cost
from corral.api.encoding import same
from corral.api.errors import Cause
from corral.api.kinds.crd import cel_rule_costs
from corral.api.kinds.crd.cel_field_selections import UnknownFieldError, read_fields
from corral.api.kinds.crd.field_paths import formatted
from corral.api.schema.paths import Place
from corral.api.schema.ratcheting import correlated

RULES: Final = "x-kubernetes-validations"
MOST_WORK: Final = 2 * cost.MAX_COST
"""The budget of work of all rules on one document.  Work is estimated, and rather over-estimated:
the event loop is blocked while rules run."""
MOST_EVALUATIONS: Final = 5000
"""The most rules that are run on one document."""
_LONGEST_MESSAGE: Final = 5 << 10

_OLD_SELF = re.compile(r"\boldSelf\b")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|"
    "namespace|return|var|void|while"
)
_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
_OPTIONAL: Final = "cel.bind(oldSelf, oldSelves[?0],\n{text}\n)"
"""Wraps the expression of a rule with ``optionalOldSelf``; its lines are one further down then."""
_LINE = re.compile(r"(?<=^ERROR: <input>:)\d+", re.MULTILINE)
REASONS: Final[Mapping[str, str]] = {
    "FieldValueInvalid": 'Invalid value: "{type}": {text}',
    "FieldValueForbidden": "Forbidden: {text}",
    "FieldValueRequired": "Required value: {text}",
    "FieldValueDuplicate": 'Duplicate value: "{type}"',
}


class CostError(Exception):
    """A new rule exceeds the cost budget with the largest object that can be sent."""


class _SpentError(Exception):
    """The rules of a document have used up their budget."""


@dataclass(frozen=True)
class Rule:
    """One rule of a schema.

    declared: the entry in ``x-kubernetes-validations``.
    schema: the schema that has the rule.
    is_new: whether its definition is being stored: only then are type errors and costs refused.
    """

    declared: Mapping[str, Any]
    schema: Mapping[str, Any]
    is_new: bool = False

    @property
    def text(self) -> str:
        return str(self.declared.get("rule", "")).strip()

    @cached_property
    def is_transition(self) -> bool:
        """True if the rule uses ``oldSelf``: it is then evaluated on updates only."""
        texts = (self.text, self.declared.get("messageExpression", ""))
        return any(_OLD_SELF.search(text) for text in texts)

    @property
    def is_optional(self) -> bool:
        """True if ``oldSelf`` is optional: the rule is then evaluated on creates, too."""
        return bool(self.declared.get("optionalOldSelf"))

    @property
    def field_path(self) -> str:
        """The path, from the place of the rule, of the field that its causes name."""
        return formatted(self.declared.get("fieldPath", ""), self.schema) or ""

    @cached_property
    def program(self) -> Program:
        """The compiled rule.  Raises CelError and CostError."""
        return self._compile(self.text)

    @cached_property
    def message_program(self) -> Program | None:
        """The compiled ``messageExpression``, if there is one.  Raises CelError and CostError."""
        text = self.declared.get("messageExpression", "").strip()
        return self._compile(text) if text else None

    def _bind_types(self, program: Program) -> Program:
        """Return a program with the types of the schema; it parses strings that have a format.

        Raises CelError if it selects a field that the schema does not have, or types do not match,
        and CostError.
        """
        variables: dict[str, Mapping[str, Any]] = {"self": self.schema}
        if self.is_optional:
            variables["oldSelves"] = {"type": "array", "items": self.schema}
        else:
            variables["oldSelf"] = self.schema
        try:
            selections = read_fields(program.tree, variables, escaped)
        except UnknownFieldError as fault:
            raise program.fault(fault.node, fault.why) from None
        typed = program.converted(selections.read)
        if self.is_new:
            if cel_rule_costs.exceeds_budget(program.tree, selections.ranges):
                raise CostError(cel_rule_costs.EXCEEDED)
            typed.returns = program.require_fit(selections.types)
        return typed

    def _compile(self, text: str) -> Program:
        variables = {"self": "dyn"}
        if self.is_transition:
            variables["oldSelf"] = "dyn"
        program = compile_expression(text, variables)
        return self._with_optional(text) if self.is_optional else self._bind_types(program)

    def _with_optional(self, text: str) -> Program:
        """Compile an expression, which compiles by itself, with an optional ``oldSelf``."""
        variables = {"self": "dyn", "oldSelves": "list"}
        try:
            return self._bind_types(compile_expression(_OPTIONAL.format(text=text), variables))
        except CelError as error:
            raise CelError(_LINE.sub(lambda line: str(int(line[0]) - 1), str(error))) from None

    def bindings(self, value: Any, old: Any) -> dict[str, Any]:
        if self.is_optional:
            return {"self": value, "oldSelves": [] if old is None else [old]}
        return {"self": value, "oldSelf": old} if self.is_transition else {"self": value}


class Rules(Place):
    """The rules of a schema and of the schemas in it; false if there are none."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._type: str = schema.get("type", "")
        self._rules = [Rule(declared, schema) for declared in schema.get(RULES) or ()]
        super().__init__(schema)

    @property
    def _has_content(self) -> bool:
        return bool(self._rules)

    def check(
        self, document: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> tuple[list[Cause], list[str]]:
        """Return the causes of rules that a document breaks, and warnings.

        A rule that an unchanged value breaks is a warning only (ratcheting).
        """
        run = _Run(Budget())
        try:
            self.walk(run, "", document, old, _Stored(old, document))
        except _SpentError:
            text = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            run.causes.append(Cause("<nil>", f'Invalid value: "object": {text}'))
        return run.causes, run.warnings

    def check_default(self, value: Any, budget: "Budget") -> list[Cause]:
        """Return the causes of rules that a default breaks, as an unchanged or as a new value.

        Rules beyond the budget are not evaluated.
        """
        for old in (value, None):
            run = _Run(budget)
            with suppress(_SpentError):
                self.walk(run, "default", value, old, _Stored(None, value))
            if run.causes:
                return run.causes
        return []

    def for_field(self, name: str) -> "Rules | None":
        """Return the rules of a field's schema, and of the schemas in it."""
        return self._below.get(name)

    def for_keyword(self, keyword: str) -> "Rules | None":
        """Return the rules of ``items`` or ``additionalProperties``."""
        return self._items if keyword == "items" else self._rest

    def walk(self, run: "_Run", path: str, value: Any, old: Any, stored: "_Stored") -> None:
        if value is None:
            return
        if self._rules:
            new_cel = as_cel(value, self._schema)
            old_cel = None if old is None else as_cel(old, self._schema)
            values = _Values(new_cel, old_cel, cost.size_of([new_cel, old_cel]))
            for rule in self._rules:
                if rule.is_transition and old is None and not rule.is_optional:
                    continue
                cause = self._evaluate(run, rule, path, values)
                if cause is None:
                    continue
                if rule.is_transition or not stored.is_unchanged:
                    run.causes.append(cause)
                else:
                    run.warnings.append(f"{cause.field}: {cause.message}")
        self._check_below(run, path, value, old, stored)

    def _check_below(self, run: "_Run", path: str, value: Any, old: Any, stored: "_Stored") -> None:
        if isinstance(value, dict):
            old_fields = old if isinstance(old, dict) else {}
            stored_fields = stored.value if isinstance(stored.value, dict) else {}
            for name, inner in value.items():
                if (rules := self._below.get(name)) is not None:
                    where = f"{path}.{name}" if path else name
                elif self._rest is not None and name not in (self._schema.get("properties") or {}):
                    rules, where = self._rest, f"{path}[{name}]"
                else:
                    continue
                here = _Stored(stored_fields.get(name), inner, stored)
                rules.walk(run, where, inner, old_fields.get(name), here)
        elif isinstance(value, list) and self._items is not None:
            olds = correlated(self._schema, value, old)
            stored_items = correlated(self._schema, value, stored.value)
            for index, inner in enumerate(value):
                here = _Stored(stored_items[index], inner, stored)
                self._items.walk(run, f"{path}[{index}]", inner, olds[index], here)

    def _evaluate(self, run: "_Run", rule: Rule, path: str, values: "_Values") -> Cause | None:
        """Evaluate a rule; return its cause, or None if it holds."""
        try:
            if run.value(rule, rule.program, values) is True:
                return None
        except CelError as error:
            return self._cause(
                path, f"{error} evaluating rule: {_rule_name(rule)}", "FieldValueInvalid"
            )
        text = self._message(run, rule, values)
        where = (path + rule.field_path).removeprefix("" if path else ".")
        return self._cause(where, text, rule.declared.get("reason") or "FieldValueInvalid")

    def _message(self, run: "_Run", rule: Rule, values: "_Values") -> str:
        default: str = rule.declared.get("message", "").strip() or f"failed rule: {rule.text}"
        try:
            if rule.message_program is None:
                return default
            message = run.value(rule, rule.message_program, values)
        except CelError:
            return default
        text = message.strip() if isinstance(message, str) else ""
        return text if text and "\n" not in text and len(text) <= _LONGEST_MESSAGE else default

    def _cause(self, path: str, text: str, reason: str) -> Cause:
        message = REASONS[reason].format(type=self._type, text=text)
        return Cause(path or "<nil>", message, reason)


@dataclass(frozen=True)
class _Stored:
    """The stored value at a place of a document, to find out whether it changed.

    value: the stored value; None if there was none, or if it is an item that cannot be matched.
    now: the new value.
    parent: the same of the enclosing object or list.
    """

    value: Any
    now: Any
    parent: "_Stored | None" = None

    @cached_property  # a list may have many items that all need it
    def is_unchanged(self) -> bool:
        """True if the value is unchanged, or else its nearest ancestor with a stored value."""
        if self.value is not None:
            return same(self.now, self.value)
        return self.parent is not None and self.parent.is_unchanged


class _Values(NamedTuple):
    """The values of ``self`` and ``oldSelf`` for rules, and their size."""

    value: Any
    old: Any
    size: cost.Size


class Budget:
    """The work that the rules of one document may do together."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def spend(self, work: int) -> None:
        """Subtract estimated work; raises _SpentError once it is used up, and ever after."""
        self._left -= work
        if self._left < 0:
            raise _SpentError


class _Run:
    """The state of one check of one document."""

    def __init__(self, budget: Budget) -> None:
        self.causes: list[Cause] = []
        self.warnings: list[str] = []
        self._budget = budget

    def value(self, rule: Rule, program: Program, values: "_Values") -> Any:
        """Run an expression.  Raises CelError and _SpentError."""
        least = MOST_WORK // MOST_EVALUATIONS
        self._budget.spend(least + 2 * values.size.conversion + program.estimated_cost(values.size))
        return program.run(rule.bindings(values.value, values.old))


def _rule_name(rule: Rule) -> str:
    return rule.declared.get("message", "").strip() or rule.text


def as_cel(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value as CEL sees it: numbers of the schema's type, field names escaped."""
    if isinstance(value, dict):
        properties: Mapping[str, Any] = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        rest = rest if isinstance(rest, Mapping) else {}
        return {
            escaped(name) if name in properties else name: as_cel(inner, properties.get(name, rest))
            for name, inner in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [as_cel(inner, items) for inner in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def escaped(name: str) -> str:
    """Return a field's name escaped for CEL: ``x-y`` is ``x__dash__y``."""
    if _RESERVED.fullmatch(name):
        return f"__{name}__"
    if _IDENTIFIER.fullmatch(name) and "__" not in name:
        return name
    for letters, word in _ESCAPES:
        name = name.replace(letters, word)
    return name
