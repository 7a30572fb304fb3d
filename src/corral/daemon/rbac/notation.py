"""Shorthand for roles and bindings."""

from collections.abc import Mapping

from corral.api.kinds.auth.rbac import CLUSTER_ROLE, GROUP, GROUP_OF_USERS, ROLE
from corral.api.object import Document

READ = "get list watch"
CHANGE = "create delete deletecollection patch update"
WRITE = "create delete deletecollection get list patch update watch"

BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
"""Annotation: unless it is ``false``, missing rules are added at each start."""
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
"""Begins the label by which a role becomes part of another."""


def rule(verbs: str, groups: str, resources: str, *, names: str = "") -> Document:
    """A rule about resources; a group written as ``core`` is the nameless one."""
    made = {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": sorted(resources.split()),
        "verbs": verbs.split(),
    }
    return made | ({"resourceNames": names.split()} if names else {})


def paths(verbs: str, urls: str) -> Document:
    """A rule about addresses."""
    return {"nonResourceURLs": urls.split(), "verbs": verbs.split()}


def role(
    name: str,
    *rules: Document,
    labels: Mapping[str, str] = BOOTSTRAPPING,
    part_of: str = "",
    of_parts: str = "",
    namespace: str = "",
) -> Document:
    """A ClusterRole, or a Role in a namespace.

    ``part_of`` names the role that it becomes part of; ``of_parts`` is set for a role that has no
    rules of its own, but those of its parts.
    """
    marked = {**labels, **({f"{AGGREGATE}{part_of}": "true"} if part_of else {})}
    metadata = {"name": name, "labels": marked, "annotations": {AUTOUPDATE: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    if not of_parts:
        return {"metadata": metadata, "rules": list(rules)}
    selector = {"matchLabels": {f"{AGGREGATE}{of_parts}": "true"}}
    return {"metadata": metadata, "aggregationRule": {"clusterRoleSelectors": [selector]}}


def binding(
    name: str,
    *subjects: Document,
    to: str = "",
    labels: Mapping[str, str] = BOOTSTRAPPING,
    namespace: str = "",
) -> Document:
    """A ClusterRoleBinding to the ClusterRole of the same name, or ``to`` another.

    With a namespace: a RoleBinding there, to the Role of that name.
    """
    metadata = {"name": name, "labels": dict(labels), "annotations": {AUTOUPDATE: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    kind = ROLE if namespace else CLUSTER_ROLE
    return {
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind.name, "name": to or name},
        "subjects": list(subjects),
    }


def group(name: str) -> Document:
    """All users of a group."""
    return {"apiGroup": GROUP, "kind": GROUP_OF_USERS, "name": name}
