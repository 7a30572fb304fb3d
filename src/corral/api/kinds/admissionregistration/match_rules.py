"""Match rules of webhooks and policies: operations, resources, selectors, CEL conditions."""

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
"""Variables of all expressions, and their types."""


# ------------------------------------------------------------------- defaults


def default_selection(selection: Document, rules: str) -> None:
    """Default selectors and scopes to match everything; ``rules`` is the field of the rules."""
    selection.setdefault("matchPolicy", EQUIVALENT)
    for selector in ("namespaceSelector", "objectSelector"):
        if selection.get(selector) is None:
            selection[selector] = {}
    for rule in selection.get(rules) or ():
        rule.setdefault("scope", "*")


# ---------------------------------------------------------------------- rules


def selection_causes(path: str, selection: Document) -> Iterator[Cause]:
    """Check match policy and selectors."""
    policy = selection["matchPolicy"]
    if policy not in MATCH_POLICIES:
        yield unsupported(f"{path}.matchPolicy", policy, MATCH_POLICIES)
    for selector in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(f"{path}.{selector}", selection[selector])


def rule_causes(path: str, rule: Document) -> Iterator[Cause]:
    """Check a rule of operations on resources."""
    yield from _check_operations(f"{path}.operations", rule.get("operations") or ())
    yield from _check_wildcard(f"{path}.apiGroups", rule.get("apiGroups") or (), "API groups")
    versions = rule.get("apiVersions") or ()
    yield from _check_wildcard(f"{path}.apiVersions", versions, "API versions")
    yield from _check_not_empty(f"{path}.apiVersions", versions)
    yield from _check_resources(f"{path}.resources", rule.get("resources") or ())
    if rule["scope"] not in SCOPES:
        yield unsupported(f"{path}.scope", rule["scope"], SCOPES)


def _check_operations(path: str, operations: Sequence[str]) -> Iterator[Cause]:
    yield from _check_wildcard(path, operations, "operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            yield unsupported(f"{path}[{index}]", operation, OPERATIONS)


def _check_wildcard(path: str, names: Sequence[str], noun: str) -> Iterator[Cause]:
    """Check that names are not empty, and that ``*`` is the only one."""
    if not names:
        yield required(path)
    if len(names) > 1 and "*" in names:
        yield invalid(path, names, f"if '*' is present, must not specify other {noun}")


def _check_not_empty(path: str, names: Iterable[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}]")


def _check_resources(path: str, resources: Sequence[str]) -> Iterator[Cause]:
    if not resources:
        yield required(path)
    yield from _check_not_empty(path, resources)
    resources_with_all: set[str] = set()
    subresources_of_all: set[str] = set()
    for index, resource in enumerate(resources):
        resource_name, slash, subresource = resource.partition("/")
        if not slash:
            continue
        if resource_name in resources_with_all:
            why = f"if '{resource_name}/*' is present, must not specify {resource}"
            yield invalid(f"{path}[{index}]", resource, why)
        if subresource in subresources_of_all:
            why = f"if '*/{subresource}' is present, must not specify {resource}"
            yield invalid(f"{path}[{index}]", resource, why)
        if subresource == "*":
            resources_with_all.add(resource_name)
        if resource_name == "*":
            subresources_of_all.add(subresource)
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
    """Check match conditions."""
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
    policy_variables: Mapping[str, str] | None = None,
    why: str = "",
) -> Iterator[Cause]:
    """Check an expression, which must have one of the types in ``returns``.

    ``never`` are types that it must neither have nor contain; ``policy_variables`` are the types of
    the policy's own variables, if it may use them.
    """
    if not (expression or "").strip():
        yield required(path, why)
        return
    assert expression is not None
    try:
        program = compile_expression(expression, variables)
        result_type = (
            _checked_type(program, policy_variables)
            if policy_variables is not None
            else program.returns
        )
    except CelError as error:
        yield invalid(path, expression, f"compilation failed: {error}")
        return
    for forbidden_type in never:
        if forbidden_type in result_type:
            why = (
                f"a value of type {forbidden_type} cannot be kept: "
                "write it as a string, or where it is used"
            )
            yield invalid(path, expression, why)
    if returns and result_type not in returns:
        yield invalid(path, expression, f"must evaluate to {' or '.join(returns)}")


def type_of(
    expression: str | None, variables: dict[str, str], policy_variables: Mapping[str, str]
) -> str:
    """Return the type of a policy's variable; ``dyn`` if it is unknown before evaluation."""
    try:
        return _checked_type(compile_expression(expression or "", variables), policy_variables)
    except CelError:
        return "dyn"


def _checked_type(program: Program, policy_variables: Mapping[str, str]) -> str:
    """Return the type of an expression, from the types of the policy's variables.

    Raises CelError if types do not match, and for unknown variables.
    """
    return program.require_fit(variable_types(program, policy_variables))


def variable_types(program: Program, policy_variables: Mapping[str, str]) -> dict[int, str]:
    """Return the types of the nodes of an expression that are the policy's variables, by number.

    Raises CelError for an unknown variable.
    """
    types = {}
    for node in syntax_tree.walk(program.tree):
        operand = node.parts[0] if node.kind == "field" else node
        if node.kind == "field" and (operand.kind, operand.text) == ("name", "variables"):
            if node.text not in policy_variables:
                raise program.fault(node, f"undefined field '{node.text}'")
            types[node.number] = policy_variables[node.text]
    return types
