"""ValidatingAdmissionPolicy and its binding."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lightkube.models.admissionregistration_v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.admissionregistration.match_rules import (
    FAIL,
    FAILURE_POLICIES,
    GROUP,
    VARIABLES,
    condition_causes,
    default_selection,
    expression_causes,
    rule_causes,
    selection_causes,
    type_of,
)
from corral.api.kinds.causes import (
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    required,
    status_condition_causes,
    unsupported,
)
from corral.api.kinds.columns import age, field, length
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.names import label_faults, label_key_faults, path_segment_faults, subdomain_faults
from corral.api.object import Document

DENY: Final = "Deny"
WARN: Final = "Warn"
AUDIT: Final = "Audit"
ACTIONS: Final = (AUDIT, DENY, WARN)
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ALLOW: Final = "Allow"
NOT_FOUND_ACTIONS: Final = (ALLOW, DENY)
MOST_ANNOTATIONS: Final = 20
LONGEST_ANNOTATION: Final = 5 << 10

_NAME = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_NO_ITEMS = "validations or auditAnnotations must contain at least one item"
_UNSUPPORTED_TYPES: Final = ("duration", "timestamp", "type")
"""Types that a variable must not have: the CEL library cannot take such values as input."""
_NO_EXPRESSION = "expression is not specified"


def without_authorizer(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of message expressions, which have no ``authorizer``."""
    return {name: cel_type for name, cel_type in variables.items() if name != "authorizer"}


def variables_of(spec: Mapping[str, Document | None]) -> dict[str, str]:
    """Return the variables of a policy's expressions, and their types."""
    variables = {**VARIABLES, "namespaceObject": "dyn", "variables": "map"}
    return {**variables, "params": "dyn"} if spec.get("paramKind") is not None else variables


# ------------------------------------------------------------------- defaults


def _default_policy(document: Document) -> None:
    spec = document.get("spec")
    if spec is None:
        return
    spec.setdefault("failurePolicy", FAIL)
    if spec.get("matchConstraints") is not None:
        _default_resources(spec["matchConstraints"])


def _default_binding(document: Document) -> None:
    resources = at(document, "spec", "matchResources")
    if resources is not None:
        _default_resources(resources)


def _default_resources(resources: Document) -> None:
    default_selection(resources, "resourceRules")
    for rule in resources.get("excludeResourceRules") or ():
        rule.setdefault("scope", "*")


# --------------------------------------------------------------------- policy


def _validate_policy(document: Document, old: Document | None, _user: str) -> Verdict:
    name, spec = document["metadata"]["name"], document.get("spec") or {"failurePolicy": FAIL}
    return Verdict(limited([*_check_policy(name, spec), *status_condition_causes(document, old)]))


def _check_policy(name: str, spec: Document) -> Iterator[Cause]:
    variables = variables_of(spec)
    if spec["failurePolicy"] not in FAILURE_POLICIES:
        yield unsupported("spec.failurePolicy", spec["failurePolicy"], FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        yield from _check_param_kind("spec.paramKind", spec["paramKind"])
    yield from _check_constraints("spec.matchConstraints", spec.get("matchConstraints"))
    conditions = spec.get("matchConditions") or ()
    yield from condition_causes("spec.matchConditions", conditions, variables)
    policy_variables: dict[str, str] = {}
    for index, variable in enumerate(spec.get("variables") or ()):
        yield from _check_variable(
            f"spec.variables[{index}]", variable, variables, policy_variables
        )
        policy_variables[variable.get("name") or ""] = type_of(
            variable.get("expression"), variables, policy_variables
        )
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", _NO_ITEMS)
        yield required("spec.auditAnnotations", _NO_ITEMS)
    for index, validation in enumerate(spec.get("validations") or ()):
        yield from _check_validation(
            f"spec.validations[{index}]", validation, variables, policy_variables
        )
    yield from _check_annotations(
        name, spec.get("auditAnnotations") or (), variables, policy_variables
    )


def _check_param_kind(path: str, kind: Document) -> Iterator[Cause]:
    api_version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, slash, version = api_version.rpartition("/")
    if not api_version:
        yield required(f"{path}.apiVersion")
    elif "/" in group:
        why = f"unexpected GroupVersion string: {api_version}"
        yield invalid(f"{path}.apiVersion", api_version, why)
    else:
        if slash:
            yield from each_invalid(f"{path}.apiVersion", group, subdomain_faults(group))
        yield from each_invalid(f"{path}.apiVersion", api_version, label_faults(version))
    if not name:
        yield required(f"{path}.kind")
    for fault in label_faults(name.lower()) if name else ():
        why = f"may have mixed case, but should otherwise match: {fault}"
        yield invalid(f"{path}.kind", name, why)


def _check_constraints(path: str, resources: Document | None) -> Iterator[Cause]:
    if resources is None:
        yield required(path)
        return
    yield from _check_resources(path, resources)
    if not resources.get("resourceRules"):
        yield required(f"{path}.resourceRules")


def _check_resources(path: str, resources: Document) -> Iterator[Cause]:
    yield from selection_causes(path, resources)
    for part in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(part) or ()):
            where = f"{path}.{part}[{index}]"
            yield from _check_resource_names(
                f"{where}.resourceNames", rule.get("resourceNames") or ()
            )
            yield from rule_causes(where, rule)


def _check_resource_names(path: str, names: Sequence[str]) -> Iterator[Cause]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        yield from each_invalid(f"{path}[{index}]", name, path_segment_faults(name))
        if first.setdefault(name, index) < index:
            yield duplicate(f"{path}[{index}]", name)


def _check_variable(
    path: str, variable: Document, variables: dict[str, str], policy_variables: dict[str, str]
) -> Iterator[Cause]:
    name = variable.get("name") or ""
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not _NAME.fullmatch(name):
        yield invalid(f"{path}.name", name, "name is not a valid CEL identifier")
    expression = variable.get("expression")
    where = f"{path}.expression"
    yield from expression_causes(
        where,
        expression,
        variables,
        returns=(),
        never=_UNSUPPORTED_TYPES,
        policy_variables=policy_variables,
        why=_NO_EXPRESSION,
    )


def _check_validation(
    path: str, validation: Document, variables: dict[str, str], policy_variables: dict[str, str]
) -> Iterator[Cause]:
    expression = validation.get("expression")
    yield from expression_causes(
        f"{path}.expression",
        expression,
        variables,
        policy_variables=policy_variables,
        why=_NO_EXPRESSION,
    )
    message_expression = validation.get("messageExpression") or ""
    where = f"{path}.messageExpression"
    if message_expression and not message_expression.strip():
        yield invalid(where, message_expression, "must be non-empty if specified")
    elif message_expression:
        message_variables = without_authorizer(variables)
        yield from expression_causes(
            where,
            message_expression,
            message_variables,
            returns=("string",),
            policy_variables=policy_variables,
        )
    message = validation.get("message") or ""
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in REASONS:
        yield unsupported(f"{path}.reason", reason, REASONS)


def _check_annotations(
    name: str,
    annotations: Sequence[Document],
    variables: dict[str, str],
    policy_variables: dict[str, str],
) -> Iterator[Cause]:
    path = "spec.auditAnnotations"
    if len(annotations) > MOST_ANNOTATIONS:
        why = f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"
        yield invalid(path, list(annotations), why)
    seen: set[str] = set()
    for index, annotation in enumerate(annotations[:MOST_ANNOTATIONS]):
        where, key = f"{path}[{index}]", annotation.get("key") or ""
        yield from each_invalid(f"{where}.key", key, label_key_faults(f"{name}/{key}"))
        if key in seen:
            yield duplicate(f"{where}.key", key)
        seen.add(key)
        expression = annotation.get("valueExpression") or ""
        if len(expression) > LONGEST_ANNOTATION:
            why = f"must not exceed {LONGEST_ANNOTATION} bytes in length"
            yield required(f"{where}.valueExpression", why)
            continue
        types = ("string", "null", "dyn")
        yield from expression_causes(
            f"{where}.valueExpression",
            expression,
            variables,
            returns=types,
            policy_variables=policy_variables,
            why="valueExpression is not specified",
        )


# -------------------------------------------------------------------- binding


def _validate_binding(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(_check_binding(document.get("spec") or {})))


def _check_binding(spec: Document) -> Iterator[Cause]:
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    yield from each_invalid("spec.policyName", name, subdomain_faults(name) if name else ())
    if spec.get("paramRef") is not None:
        yield from _check_param_ref("spec.paramRef", spec["paramRef"])
    if spec.get("matchResources") is not None:
        yield from _check_resources("spec.matchResources", spec["matchResources"])
    yield from _check_actions("spec.validationActions", spec.get("validationActions") or ())


def _check_param_ref(path: str, reference: Document) -> Iterator[Cause]:
    name, selector = reference.get("name"), reference.get("selector")
    if name:
        yield from each_invalid(f"{path}.name", name, path_segment_faults(name))
        if selector is not None:
            yield forbidden(f"{path}.name", "name and selector are mutually exclusive")
    if selector is not None:
        yield from selector_causes(f"{path}.selector", selector)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        why = "must specify one of Allow, Deny"
        yield required(f"{path}.parameterNotFoundAction", why)
    elif action not in NOT_FOUND_ACTIONS:
        yield unsupported(f"{path}.parameterNotFoundAction", action, NOT_FOUND_ACTIONS)


def _check_actions(path: str, actions: Sequence[str]) -> Iterator[Cause]:
    first: dict[str, int] = {}
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield unsupported(f"{path}[{index}]", action, ACTIONS)
        if first.setdefault(action, index) < index:
            yield duplicate(f"{path}[{index}]", action)
    if DENY in actions and WARN in actions:
        why = "repeating the same validation failure information in the API response and headers"
        why = f"must not contain both Deny and Warn ({why} serves no purpose)"
        yield invalid(path, list(actions), why)
    if not actions:
        yield required(path, "at least one validation action is required")


# ---------------------------------------------------------------------- kinds


def param_kind_cell(document: Document) -> str:
    kind = at(document, "spec", "paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def param_ref_cell(document: Document) -> str:
    reference = at(document, "spec", "paramRef")
    if not reference:
        return "<unset>"
    namespace, name = reference.get("namespace"), reference.get("name")
    if name:
        return f"{namespace}/{name}" if namespace else str(name)
    return f"{namespace}/*" if namespace else "*"


POLICY = kubernetes_kind(
    group=GROUP,
    plural="validatingadmissionpolicies",
    categories=("api-extensions",),
    view=ValidatingAdmissionPolicy,
    namespaced=False,
    columns=(
        length("Validations", "spec", "validations", description="number of its validations"),
        Column(
            name="ParamKind",
            cell=param_kind_cell,
            description="the kind of objects that hold the policy's parameters",
        ),
        age(),
    ),
    default=_default_policy,
    validate=_validate_policy,
)
BINDING = kubernetes_kind(
    group=GROUP,
    plural="validatingadmissionpolicybindings",
    categories=("api-extensions",),
    view=ValidatingAdmissionPolicyBinding,
    namespaced=False,
    status=False,
    columns=(
        field("PolicyName", "spec", "policyName", description="the policy that is enforced"),
        Column(
            name="ParamRef",
            cell=param_ref_cell,
            description="the object that holds the policy's parameters",
        ),
        age(),
    ),
    default=_default_binding,
    validate=_validate_binding,
)
