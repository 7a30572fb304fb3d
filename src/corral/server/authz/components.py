"""Fixed rights of components of this process and its nodes.

They run in this process without credentials: a request from outside under such a name gets none of
these rights.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from corral.api.kinds.auth.certificate_signing_request import SIGNING_REQUEST
from corral.api.kinds.auth.rbac import CLUSTER_ROLE
from corral.api.request import User
from corral.server.authz.attributes import Attributes
from corral.server.node_proxy.vmi_subresources import GROUP

_READ = frozenset({"get", "list", "watch"})
_WRITE = _READ | {"create", "update", "patch", "delete", "deletecollection"}
_CONNECT_SUBRESOURCES = frozenset({"exec", "attach", "portforward", "proxy"})
"""Subresources that connect to the guest behind a pod, as all of the group
subresources.kubevirt.io, or to a node's agent."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The verbs that users whose name starts with ``user`` may use on resources of a group.

    A group or resource ``*`` matches any.  A resource includes its subresources, except for those
    that connect to guests; ``services/status`` is that subresource alone.
    """

    user: str
    group: str
    resources: frozenset[str]
    verbs: frozenset[str]

    def allows(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        if verb not in self.verbs or self.group not in ("*", group):
            return False
        if f"{resource}/{subresource}" in self.resources:
            return True
        if group == GROUP or subresource in _CONNECT_SUBRESOURCES:
            return False
        return resource in self.resources or "*" in self.resources


def _rule(user: str, group: str, resources: str, verbs: frozenset[str]) -> Rule:
    return Rule(user, group, frozenset(resources.split()), verbs)


_KUBEVIRT: Final = "system:serviceaccount:kubevirt:"
_NODE: Final = "system:node:"
_STORAGE: Final = "system:serviceaccount:corral:storage"
_MANAGER: Final = "system:kube-controller-manager"
RULES = (
    _rule("system:serviceaccount:kube-system:", "*", "*", _WRITE),
    _rule("system:kube-scheduler", "", "pods nodes namespaces events", _WRITE),
    _rule("system:kube-scheduler", "", "persistentvolumeclaims persistentvolumes", _WRITE),
    _rule("system:kube-scheduler", "storage.k8s.io", "storageclasses", _READ),
    _rule("system:kube-scheduler", "events.k8s.io", "events", _WRITE),
    _rule(_MANAGER, "*", "*", _WRITE),
    _rule(_MANAGER, SIGNING_REQUEST.group, "signers", frozenset({"approve", "sign"})),
    _rule(_MANAGER, CLUSTER_ROLE.group, CLUSTER_ROLE.plural, frozenset({"escalate"})),
    _rule(_KUBEVIRT, "kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "pool.kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "corral.dev", "*", _WRITE),
    _rule(_KUBEVIRT, "", "pods events configmaps persistentvolumeclaims", _WRITE),
    _rule(_KUBEVIRT, "", "nodes namespaces secrets serviceaccounts", _READ | {"patch"}),
    _rule(_KUBEVIRT, "", "persistentvolumes", _READ),
    _rule(_KUBEVIRT, "storage.k8s.io", "storageclasses", _READ),
    _rule(_KUBEVIRT, "events.k8s.io", "events", _WRITE),
    _rule(_KUBEVIRT, "apps", "controllerrevisions", _WRITE),
    _rule(_KUBEVIRT, "cdi.kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "instancetype.kubevirt.io", "*", _READ),
    _rule(_KUBEVIRT, "migrations.kubevirt.io", "migrationpolicies", _READ),
    _rule(_KUBEVIRT, "coordination.k8s.io", "leases", _WRITE),
    _rule(_STORAGE, "", "persistentvolumes events", _WRITE),
    _rule(_STORAGE, "", "persistentvolumeclaims", _READ | {"update", "patch"}),
    _rule(_STORAGE, "", "pods secrets configmaps", _READ),
    _rule(_STORAGE, "storage.k8s.io", "storageclasses", _READ),
    _rule(_NODE, "", "nodes pods events", _WRITE),
    _rule(_NODE, "", "secrets configmaps namespaces serviceaccounts", _READ),
    _rule(_NODE, "", "services endpoints persistentvolumes", _READ),
    _rule(_NODE, "", "persistentvolumeclaims", _READ | {"update", "patch"}),
    _rule(_NODE, "", "serviceaccounts/token", frozenset({"create"})),
    _rule(_NODE, "", "services/status", frozenset({"update", "patch"})),
    _rule(_NODE, "discovery.k8s.io", "endpointslices", _READ),
    _rule(_NODE, "networking.k8s.io", "networkpolicies", _READ),
    _rule(_NODE, "storage.k8s.io", "storageclasses", _READ),
    _rule(_NODE, "events.k8s.io", "events", _WRITE),
    _rule(_NODE, "coordination.k8s.io", "leases", _WRITE),
    _rule(_NODE, "kubevirt.io", "virtualmachineinstances", _READ | {"update", "patch"}),
    _rule(_NODE, "corral.dev", "virtualmachinecheckpoints", _READ | {"patch"}),
)


@lru_cache(1024)
def _allowed(user: str, verb: str, group: str, resource: str, subresource: str) -> bool:
    """Return whether a rule grants a right.

    Cached, because the rules are constant, and the few users repeat the same requests.
    """
    return any(
        rule.allows(verb, group, resource, subresource)
        for rule in RULES
        if user.startswith(rule.user)
    )


def is_controller(user: User) -> bool:
    """Return whether a component is a KubeVirt controller, which acts for an object's author."""
    return user.name.startswith(_KUBEVIRT)


def allow(attributes: Attributes) -> bool:
    """Return whether a component has a right."""
    return _allowed(
        attributes.user.name,
        attributes.verb,
        attributes.group,
        attributes.resource,
        attributes.subresource,
    )
