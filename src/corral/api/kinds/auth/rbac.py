"""RBAC: roles and bindings (rbac.authorization.k8s.io)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from lightkube.models.rbac_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from corral.api.encoding import encode_sorted
from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import each_invalid, invalid, required, too_many, unsupported
from corral.api.kinds.columns import age, created_at
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.label_selectors import selector_causes
from corral.api.names import path_segment_faults, subdomain_faults
from corral.api.object import Document
from corral.api.selectors import label_selector

GROUP: Final = "rbac.authorization.k8s.io"
USER: Final = "User"
GROUP_OF_USERS: Final = "Group"
SERVICE_ACCOUNT: Final = "ServiceAccount"
MOST_RULES: Final = 1000
"""The most rules of a role: each one is evaluated on requests of its subjects."""

_SUBJECTS = (SERVICE_ACCOUNT, USER, GROUP_OF_USERS)


# ---------------------------------------------------------------------- roles


def _validate_role(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(_check_rules(document, namespaced=True)))


def _validate_cluster_role(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(_check_cluster_role(document)))


def _check_cluster_role(document: Document) -> Iterator[Cause]:
    yield from _check_rules(document, namespaced=False)
    aggregation = document.get("aggregationRule")
    if aggregation is None:
        return
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required(path, why)
    for index, selector in enumerate(selectors):
        yield from selector_causes(f"{path}[{index}]", selector)


def _check_rules(document: Document, *, namespaced: bool) -> Iterator[Cause]:
    count = len(document.get("rules") or ())
    if count > MOST_RULES:
        yield too_many("rules", count, MOST_RULES)
        return
    for index, rule in enumerate(document.get("rules") or ()):
        yield from _check_rule(f"rules[{index}]", rule, namespaced=namespaced)


def _check_rule(path: str, rule: Document, *, namespaced: bool) -> Iterator[Cause]:
    """Check a rule: it is about resources or about URLs, never both."""
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            why = "namespaced rules cannot apply to non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", urls, why)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", urls, why)
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def aggregation_selector(rule: Document) -> Callable[[Mapping[str, str]], bool]:
    """Return a predicate of labels: whether a role with them extends the rule's role."""
    selectors = [label_selector(each) for each in rule.get("clusterRoleSelectors") or ()]
    return lambda labels: any(each.matches(labels) for each in selectors)


def aggregated(role: Document, roles: Iterable[Document]) -> list[Document]:
    """Return the rules of an aggregated ClusterRole, from the roles that its selectors match.

    Duplicates are found by the encoded rule: comparing all pairs of a few large roles would take
    minutes.
    """
    selects = aggregation_selector(at(role, "aggregationRule") or {})
    rules: dict[bytes, Document] = {}
    for part in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
        if part["metadata"]["name"] == role["metadata"]["name"]:
            continue
        if selects(part["metadata"].get("labels") or {}):
            for rule in part.get("rules") or ():
                rules.setdefault(encode_sorted(rule), rule)
    return list(rules.values())


ROLE = kubernetes_kind(
    group=GROUP,
    plural="roles",
    view=Role,
    status=False,
    columns=(created_at(),),
    validate=_validate_role,
)

CLUSTER_ROLE = kubernetes_kind(
    group=GROUP,
    plural="clusterroles",
    view=ClusterRole,
    namespaced=False,
    status=False,
    columns=(created_at(),),
    validate=_validate_cluster_role,
)


# ------------------------------------------------------------------- bindings


def default_binding(document: Document) -> None:
    """Default the API group of role, users and groups; ServiceAccounts have the core group."""
    reference = document.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in document.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in (USER, GROUP_OF_USERS):
            subject["apiGroup"] = GROUP


def _binding_validator(
    *roles: str, namespaced: bool
) -> Callable[[Document, Document | None, str], Verdict]:
    """Return the validation of bindings to these kinds of roles."""

    def validate(document: Document, old: Document | None, _user: str) -> Verdict:
        causes = limited(_check_binding(document, roles, namespaced=namespaced))
        if old is not None and document["roleRef"] != old["roleRef"]:
            reference = dict(_reference(document))
            causes.append(invalid("roleRef", reference, "cannot change roleRef"))
        return Verdict(causes)

    return validate


def _reference(document: Document) -> Iterator[tuple[str, str]]:
    reference = document["roleRef"]
    yield "APIGroup", reference.get("apiGroup", "")
    yield "Kind", reference["kind"]
    yield "Name", reference["name"]


def _check_binding(
    document: Document, roles: Sequence[str], *, namespaced: bool
) -> Iterator[Cause]:
    reference = document["roleRef"]
    if reference["apiGroup"] != GROUP:
        yield unsupported("roleRef.apiGroup", reference["apiGroup"], (GROUP,))
    if reference["kind"] not in roles:
        yield unsupported("roleRef.kind", reference["kind"], roles)
    if name := reference["name"]:
        yield from each_invalid("roleRef.name", name, path_segment_faults(name))
    else:
        yield required("roleRef.name")
    for index, subject in enumerate(document.get("subjects") or ()):
        yield from _check_subject(f"subjects[{index}]", subject, namespaced=namespaced)


def _check_subject(path: str, subject: Document, *, namespaced: bool) -> Iterator[Cause]:
    kind, name, group = subject["kind"], subject["name"], subject.get("apiGroup") or ""
    if not name:
        yield required(f"{path}.name")
    if kind == SERVICE_ACCOUNT:
        if name:
            yield from each_invalid(f"{path}.name", name, subdomain_faults(name))
        if group:
            yield unsupported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in (USER, GROUP_OF_USERS):
        if not name:
            yield invalid(f"{path}.name", name, f"{kind.lower()} name cannot be empty")
        if group != GROUP:
            yield unsupported(f"{path}.apiGroup", group, (GROUP,))
    else:
        yield unsupported(f"{path}.kind", kind, _SUBJECTS)


def _role(document: Document) -> str:
    return f"{at(document, 'roleRef', 'kind')}/{at(document, 'roleRef', 'name')}"


def _subjects_column(name: str, kind: str, description: str) -> Column:
    """Return a column of the names of the subjects of one kind."""

    def cell(document: Document) -> str:
        of_kind = (one for one in document.get("subjects") or () if one.get("kind") == kind)
        return ", ".join(
            f"{one.get('namespace') or ''}/{one['name']}" if kind == SERVICE_ACCOUNT
            else str(one["name"])
            for one in of_kind
        )  # fmt: skip

    return Column(name=name, cell=cell, description=description, priority=1)


_BINDING_COLUMNS = (
    Column(name="Role", cell=_role, description="the role that is granted"),
    age(),
    _subjects_column("Users", USER, "users who have it"),
    _subjects_column("Groups", GROUP_OF_USERS, "groups whose users have it"),
    _subjects_column("ServiceAccounts", SERVICE_ACCOUNT, "ServiceAccounts that have it"),
)

ROLE_BINDING = kubernetes_kind(
    group=GROUP,
    plural="rolebindings",
    view=RoleBinding,
    status=False,
    columns=_BINDING_COLUMNS,
    default=default_binding,
    validate=_binding_validator("Role", "ClusterRole", namespaced=True),
)

CLUSTER_ROLE_BINDING = kubernetes_kind(
    group=GROUP,
    plural="clusterrolebindings",
    view=ClusterRoleBinding,
    namespaced=False,
    status=False,
    columns=_BINDING_COLUMNS,
    default=default_binding,
    validate=_binding_validator("ClusterRole", namespaced=False),
)

KINDS = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)
