"""What webhooks and policies are about: rules of operations on resources, selectors, conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from corral.api.cel import CelError, Program, compile_expression, syntax_tree
from corral.api.errors import Cause
from corral.api.kinds.causes import (
    duplicate,
    each_invalid,
    invalid,
    required,
    too_many,
    unsupported,
)
from corral.api.kinds.label_selectors import selector_causes
from corral.api.names import label_key_faults
from corral.api.object import Document

GROUP: Final = "admissionregistration.k8s.io"
FAIL: Final = "Fail"
IGNORE: Final = "Ignore"
FAILURE_POLICIES: Final = (FAIL, IGNORE)
EQUIVALENT: Final = "Equivalent"
MATCH_POLICIES: Final = (EQUIVALENT, "Exact")
OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES: Final = ("*", "Cluster", "Namespaced")
MOST_CONDITIONS: Final = 64

VARIABLES: Final = {"object": "dyn", "oldObject": "dyn", "request": "map", "authorizer": "map"}
"""What every expression may look at, and the type of each."""


# ------------------------------------------------------------------- defaults


def default_selection(selection: Document, rules: str) -> None:
    """Who says nothing asks for everything; ``rules`` is where the rules are."""
    selection.setdefault("matchPolicy", EQUIVALENT)
    for selector in ("namespaceSelector", "objectSelector"):
        if selection.get(selector) is None:
            selection[selector] = {}
    for rule in selection.get(rules) or ():
        rule.setdefault("scope", "*")


# ---------------------------------------------------------------------- rules


def selection_causes(path: str, selection: Document) -> Iterator[Cause]:
    """What is wrong with a match policy and with selectors."""
    policy = selection["matchPolicy"]
    if policy not in MATCH_POLICIES:
        yield unsupported(f"{path}.matchPolicy", policy, MATCH_POLICIES)
    for selector in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(f"{path}.{selector}", selection[selector])


def rule_causes(path: str, rule: Document) -> Iterator[Cause]:
    """What is wrong with one rule of operations on resources."""
    yield from _operations(f"{path}.operations", rule.get("operations") or ())
    yield from _alone(f"{path}.apiGroups", rule.get("apiGroups") or (), "API groups")
    versions = rule.get("apiVersions") or ()
    yield from _alone(f"{path}.apiVersions", versions, "API versions")
    yield from _no_empty(f"{path}.apiVersions", versions)
    yield from _resources(f"{path}.resources", rule.get("resources") or ())
    if rule["scope"] not in SCOPES:
        yield unsupported(f"{path}.scope", rule["scope"], SCOPES)


def _operations(path: str, operations: Sequence[str]) -> Iterator[Cause]:
    yield from _alone(path, operations, "operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            yield unsupported(f"{path}[{index}]", operation, OPERATIONS)


def _alone(path: str, names: Sequence[str], what: str) -> Iterator[Cause]:
    """There is something, and a star stands alone."""
    if not names:
        yield required(path)
    if len(names) > 1 and "*" in names:
        yield invalid(path, names, f"if '*' is present, must not specify other {what}")


def _no_empty(path: str, names: Iterable[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}]")


def _resources(path: str, resources: Sequence[str]) -> Iterator[Cause]:
    if not resources:
        yield required(path)
    yield from _no_empty(path, resources)
    all_below: set[str] = set()
    below_all: set[str] = set()
    for index, resource in enumerate(resources):
        above, slash, below = resource.partition("/")
        if not slash:
            continue
        if above in all_below:
            why = f"if '{above}/*' is present, must not specify {resource}"
            yield invalid(f"{path}[{index}]", resource, why)
        if below in below_all:
            why = f"if '*/{below}' is present, must not specify {resource}"
            yield invalid(f"{path}[{index}]", resource, why)
        if below == "*":
            all_below.add(above)
        if above == "*":
            below_all.add(below)
    if len(resources) > 1 and "*/*" in resources:
        why = "if '*/*' is present, must not specify other resources"
        yield invalid(path, resources, why)
    if "*" in resources and any(each != "*" and "/" not in each for each in resources):
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, why)


# ----------------------------------------------------------------- conditions


def condition_causes(
    path: str, conditions: Sequence[Document], variables: dict[str, str]
) -> Iterator[Cause]:
    """What is wrong with match conditions."""
    if len(conditions) > MOST_CONDITIONS:
        yield too_many(path, len(conditions), MOST_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions[:MOST_CONDITIONS]):
        where, name = f"{path}[{index}]", condition.get("name") or ""
        yield from expression_causes(f"{where}.expression", condition.get("expression"), variables)
        if not name:
            yield required(f"{where}.name")
        else:
            yield from each_invalid(f"{where}.name", name, label_key_faults(name))
        if name and name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)


def expression_causes(
    path: str,
    expression: str | None,
    variables: dict[str, str],
    *,
    returns: Sequence[str] = ("bool",),
    never: Sequence[str] = (),
    made: Mapping[str, str] | None = None,
    why: str = "",
) -> Iterator[Cause]:
    """What is wrong with an expression, which has to be of one of the types in ``returns``.

    ``never`` are types that it must neither be of nor hold; ``made`` are those of the policy's own
    variables, if it may look at such.
    """
    if not (expression or "").strip():
        yield required(path, why)
        return
    assert expression is not None
    try:
        program = compile_expression(expression, variables)
        told = _fitting(program, made) if made is not None else program.returns
    except CelError as error:
        yield invalid(path, expression, f"compilation failed: {error}")
        return
    for word in never:
        if word in told:
            why = (
                f"a value of type {word} cannot be kept: write it as a string, or where it is used"
            )
            yield invalid(path, expression, why)
    if returns and told not in returns:
        yield invalid(path, expression, f"must evaluate to {' or '.join(returns)}")


def type_of(expression: str | None, variables: dict[str, str], made: Mapping[str, str]) -> str:
    """The type of a policy's variable; ``dyn`` where only a run tells, or nothing does."""
    try:
        return _fitting(compile_expression(expression or "", variables), made)
    except CelError:
        return "dyn"


def _fitting(program: Program, made: Mapping[str, str]) -> str:
    """The type of an expression's value, by those of the policy's variables.

    Raises CelError where types do not go together, and what ``variable_types`` raises.
    """
    return program.require_fit(variable_types(program, made))


def variable_types(program: Program, made: Mapping[str, str]) -> dict[int, str]:
    """The types of those parts of an expression that are a policy's variables, by their numbers.

    Raises CelError for a variable that there is not.
    """
    types = {}
    for node in syntax_tree.walk(program.tree):
        of = node.parts[0] if node.kind == "field" else node
        if node.kind == "field" and (of.kind, of.text) == ("name", "variables"):
            if node.text not in made:
                raise program.fault(node, f"undefined field '{node.text}'")
            types[node.number] = made[node.text]
    return types
