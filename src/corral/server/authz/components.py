"""What components of this process and its nodes may do; nobody can change that.

They live in this process and prove nothing: who comes with a name of theirs from outside is none
of them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from corral.api.kinds.auth.certificate_signing_request import SIGNING_REQUEST
from corral.api.kinds.auth.rbac import CLUSTER_ROLE
from corral.api.request import User
from corral.server.authz.attributes import Attributes
from corral.server.node_proxy.machines import GROUP

_READ = frozenset({"get", "list", "watch"})
_WRITE = _READ | {"create", "update", "patch", "delete", "deletecollection"}
_DOORS = frozenset({"exec", "attach", "portforward", "proxy"})
"""What leads into the guest behind a pod, as everything of the group subresources.kubevirt.io, or
to a node's agent."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What users whose name begins with ``user`` may do with some resources of some group.

    A group or resource ``*`` is any.  A resource includes its subresources, except for the ways
    into guests; one that is named as ``services/status`` is that subresource alone.
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
        if group == GROUP or subresource in _DOORS:
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
    _rule(_MANAGER, SIGNING_REQUEST.group, "signers", frozenset({"sign"})),
    _rule(_MANAGER, CLUSTER_ROLE.group, CLUSTER_ROLE.plural, frozenset({"escalate"})),
    _rule(_KUBEVIRT, "kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "pool.kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "", "pods events configmaps persistentvolumeclaims", _WRITE),
    _rule(_KUBEVIRT, "", "nodes namespaces secrets serviceaccounts", _READ | {"patch"}),
    _rule(_KUBEVIRT, "", "persistentvolumes", _READ),
    _rule(_KUBEVIRT, "storage.k8s.io", "storageclasses", _READ),
    _rule(_KUBEVIRT, "events.k8s.io", "events", _WRITE),
    _rule(_KUBEVIRT, "apps", "controllerrevisions", _WRITE),
    _rule(_KUBEVIRT, "cdi.kubevirt.io", "*", _WRITE),
    _rule(_KUBEVIRT, "instancetype.kubevirt.io", "*", _READ),
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
    _rule(_NODE, "events.k8s.io", "events", _WRITE),
    _rule(_NODE, "coordination.k8s.io", "leases", _WRITE),
    _rule(_NODE, "kubevirt.io", "virtualmachineinstances", _READ | {"update", "patch"}),
)


@lru_cache(1024)
def _allowed(user: str, verb: str, group: str, resource: str, subresource: str) -> bool:
    """Whether a rule lets a component do something.

    Remembered, as rules never change: there are as many users as loops and nodes, and each does the
    same few things.
    """
    return any(
        rule.allows(verb, group, resource, subresource)
        for rule in RULES
        if user.startswith(rule.user)
    )


def is_controller(user: User) -> bool:
    """Whether a component has a controller's name: it acts for those who wrote what it looks at."""
    return user.name.startswith(_KUBEVIRT)


def allow(wish: Attributes) -> bool:
    """Whether a component may do what it wants."""
    return _allowed(wish.user.name, wish.verb, wish.group, wish.resource, wish.subresource)
