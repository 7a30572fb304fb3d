"""``x-kubernetes-validations``: rules in CEL over what a schema describes."""

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
from corral.api.kinds.crd.field_paths import normal
from corral.api.schema.paths import Place
from corral.api.schema.ratcheting import correlated

RULES: Final = "x-kubernetes-validations"
MOST_WORK: Final = 2 * cost.MAX_COST
"""What all rules over one document may be to do together, as it is reckoned, which is more than it
is: all others wait meanwhile."""
MOST_EVALUATIONS: Final = 5000
"""Rules that are run over one document, at most."""
_LONGEST_MESSAGE: Final = 5 << 10

_OLD = re.compile(r"\boldSelf\b")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
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
"""Where an expression about what may not have been stands: each line is one further down."""
_LINE = re.compile(r"(?<=^ERROR: <input>:)\d+", re.MULTILINE)
REASONS: Final[Mapping[str, str]] = {
    "FieldValueInvalid": 'Invalid value: "{type}": {text}',
    "FieldValueForbidden": "Forbidden: {text}",
    "FieldValueRequired": "Required value: {text}",
    "FieldValueDuplicate": 'Duplicate value: "{type}"',
}


class CostError(Exception):
    """A rule that is to be stored is over its budget with the largest object that can be sent."""


class _SpentError(Exception):
    """So many rules have run that no more are."""


@dataclass(frozen=True)
class Rule:
    """One rule, as a schema says it of what it describes."""

    told: Mapping[str, Any]
    schema: Mapping[str, Any]
    is_new: bool = False
    """Whether its definition is to be stored: types that do not fit are refused then, not found
    with each document."""

    @property
    def text(self) -> str:
        return str(self.told.get("rule", "")).strip()

    @cached_property
    def is_transition(self) -> bool:
        """Whether it compares with what was: then it is about changes only."""
        texts = (self.text, self.told.get("messageExpression", ""))
        return any(_OLD.search(text) for text in texts)

    @property
    def is_optional(self) -> bool:
        """Whether it is about new values, too, and asks whether there was an old one."""
        return bool(self.told.get("optionalOldSelf"))

    @property
    def about(self) -> str:
        """The path from what it stands at to the field of which it tells faults."""
        return normal(self.told.get("fieldPath", ""), self.schema) or ""

    @cached_property
    def program(self) -> Program:
        """Raises CelError and CostError."""
        return self._compile(self.text)

    @cached_property
    def message_program(self) -> Program | None:
        """What makes its message, if it says so.  Raises CelError."""
        text = self.told.get("messageExpression", "").strip()
        return self._compile(text) if text else None

    def _typed(self, program: Program) -> Program:
        """A program that takes texts for what their formats say.

        Raises CelError where it selects a field that its schema has not, or types do not fit, and
        CostError.
        """
        known: dict[str, Mapping[str, Any]] = {"self": self.schema}
        if self.is_optional:
            known["oldSelves"] = {"type": "array", "items": self.schema}
        else:
            known["oldSelf"] = self.schema
        try:
            selections = read_fields(program.tree, known, escaped)
        except UnknownFieldError as fault:
            raise program.fault(fault.node, fault.why) from None
        made = program.converted(selections.read)
        if self.is_new:
            if cel_rule_costs.is_far_over(program.tree, selections.ranges):
                raise CostError(cel_rule_costs.EXCEEDED)
            made.returns = program.require_fit(selections.types)
        return made

    def _compile(self, text: str) -> Program:
        variables = {"self": "dyn"}
        if self.is_transition:
            variables["oldSelf"] = "dyn"
        program = compile_expression(text, variables)
        return self._with_optional(text) if self.is_optional else self._typed(program)

    def _with_optional(self, text: str) -> Program:
        """The program of an expression, which is known to be one by itself."""
        variables = {"self": "dyn", "oldSelves": "list"}
        try:
            return self._typed(compile_expression(_OPTIONAL.format(text=text), variables))
        except CelError as error:
            raise CelError(_LINE.sub(lambda line: str(int(line[0]) - 1), str(error))) from None

    def bindings(self, value: Any, old: Any) -> dict[str, Any]:
        if self.is_optional:
            return {"self": value, "oldSelves": [] if old is None else [old]}
        return {"self": value, "oldSelf": old} if self.is_transition else {"self": value}


class Rules(Place):
    """The rules at one place of a document, and below it; false where there are none."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._type: str = schema.get("type", "")
        self._rules = [Rule(told, schema) for told in schema.get(RULES) or ()]
        super().__init__(schema)

    @property
    def _has_content(self) -> bool:
        return bool(self._rules)

    def check(
        self, document: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> tuple[list[Cause], list[str]]:
        """What rules a document breaks; and what to warn of, that was so before."""
        run = _Run(Budget())
        try:
            self.walk(run, "", document, old, _Before(old, document))
        except _SpentError:
            text = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            run.causes.append(Cause("<nil>", f'Invalid value: "object": {text}'))
        return run.causes, run.warnings

    def check_default(self, value: Any, budget: "Budget") -> list[Cause]:
        """What rules a default breaks, as one that was there before, or else as a new one.

        Rules that the budget is too small for are not asked.
        """
        for old in (value, None):
            run = _Run(budget)
            with suppress(_SpentError):
                self.walk(run, "default", value, old, _Before(None, value))
            if run.causes:
                return run.causes
        return []

    def of_field(self, name: str) -> "Rules | None":
        """The rules of a field, and below it."""
        return self._below.get(name)

    def of_word(self, word: str) -> "Rules | None":
        """The rules of ``items`` or ``additionalProperties``, and below."""
        return self._items if word == "items" else self._rest

    def walk(self, run: "_Run", path: str, value: Any, old: Any, before: "_Before") -> None:
        if value is None:
            return
        if self._rules:
            shown = as_cel(value, self._schema)
            was = None if old is None else as_cel(old, self._schema)
            given = _Given(shown, was, cost.size_of([shown, was]))
            for rule in self._rules:
                if rule.is_transition and old is None and not rule.is_optional:
                    continue
                cause = self._broken(run, rule, path, given)
                if cause is None:
                    continue
                if rule.is_transition or not before.is_kept:
                    run.causes.append(cause)
                else:
                    run.warnings.append(f"{cause.field}: {cause.message}")
        self._check_below(run, path, value, old, before)

    def _check_below(self, run: "_Run", path: str, value: Any, old: Any, before: "_Before") -> None:
        if isinstance(value, dict):
            known = old if isinstance(old, dict) else {}
            stood = before.value if isinstance(before.value, dict) else {}
            for name, inner in value.items():
                if (rules := self._below.get(name)) is not None:
                    where = f"{path}.{name}" if path else name
                elif self._rest is not None and name not in (self._schema.get("properties") or {}):
                    rules, where = self._rest, f"{path}[{name}]"
                else:
                    continue
                here = _Before(stood.get(name), inner, before)
                rules.walk(run, where, inner, known.get(name), here)
        elif isinstance(value, list) and self._items is not None:
            olds = correlated(self._schema, value, old)
            earlier = correlated(self._schema, value, before.value)
            for index, inner in enumerate(value):
                here = _Before(earlier[index], inner, before)
                self._items.walk(run, f"{path}[{index}]", inner, olds[index], here)

    def _broken(self, run: "_Run", rule: Rule, path: str, given: "_Given") -> Cause | None:
        """The refusal by a rule; None where it holds."""
        try:
            if run.value(rule, rule.program, given) is True:
                return None
        except CelError as error:
            return self._cause(path, f"{error} evaluating rule: {_name(rule)}", "FieldValueInvalid")
        text = self._message(run, rule, given)
        where = (path + rule.about).removeprefix("" if path else ".")
        return self._cause(where, text, rule.told.get("reason") or "FieldValueInvalid")

    def _message(self, run: "_Run", rule: Rule, given: "_Given") -> str:
        usual: str = rule.told.get("message", "").strip() or f"failed rule: {rule.text}"
        try:
            if rule.message_program is None:
                return usual
            made = run.value(rule, rule.message_program, given)
        except CelError:
            return usual
        text = made.strip() if isinstance(made, str) else ""
        return text if text and "\n" not in text and len(text) <= _LONGEST_MESSAGE else usual

    def _cause(self, path: str, text: str, reason: str) -> Cause:
        message = REASONS[reason].format(type=self._type, text=text)
        return Cause(path or "<nil>", message, reason)


@dataclass(frozen=True)
class _Before:
    """What stood at a place before, and what stands there now.

    value: None where it is not known: of what was not there, and of the items of some lists.
    above: the same of what the place is in.
    """

    value: Any
    now: Any
    above: "_Before | None" = None

    @cached_property  # many items may ask it of their list
    def is_kept(self) -> bool:
        """Whether nothing changed here, or else at the nearest place above of which it is known."""
        if self.value is not None:
            return same(self.now, self.value)
        return self.above is not None and self.above.is_kept


class _Given(NamedTuple):
    """What rules are given, and how large it is."""

    value: Any
    old: Any
    size: cost.Size


class Budget:
    """What rules may be to do together."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def take(self, work: int) -> None:
        """Raises _SpentError, and ever after."""
        self._left -= work
        if self._left < 0:
            raise _SpentError


class _Run:
    """One check of one document."""

    def __init__(self, budget: Budget) -> None:
        self.causes: list[Cause] = []
        self.warnings: list[str] = []
        self._budget = budget

    def value(self, rule: Rule, program: Program, given: "_Given") -> Any:
        """What an expression makes of values.  Raises CelError, and _SpentError."""
        least = MOST_WORK // MOST_EVALUATIONS
        self._budget.take(least + 2 * given.size.conversion + program.estimated_cost(given.size))
        return program.run(rule.bindings(given.value, given.old))


def _name(rule: Rule) -> str:
    return rule.told.get("message", "").strip() or rule.text


def as_cel(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as rules see it: numbers of the schema's type, and names that CEL can read."""
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
    """A field's name as rules write it: ``x-y`` is ``x__dash__y``."""
    if _RESERVED.fullmatch(name):
        return f"__{name}__"
    if _PLAIN.fullmatch(name) and "__" not in name:
        return name
    for letters, word in _ESCAPES:
        name = name.replace(letters, word)
    return name
