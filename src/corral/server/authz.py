"""Who may do what.

Administrators may do everything; so may the loops that stand in for Kubernetes' own, but go into no
guest.  KubeVirt's components and nodes may do what their work needs.  Everybody else may look at
what is served, not at objects.  Components live in this process and prove nothing: who comes with
a token of a ServiceAccount is none of them, whatever its namespace.
"""

from dataclasses import dataclass

from corral.api.errors import Details, Forbidden
from corral.api.wire import User
from corral.server.accounts import CREDENTIAL
from corral.server.authn import ADMINISTRATORS
from corral.server.call import Call
from corral.server.machines import GROUP
from corral.server.route import Route

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

    def allows(self, call: Call) -> bool:
        named = {f"{call.kind.plural}/{call.subresource}"}
        if call.group != GROUP and call.subresource.partition("/")[0] not in _DOORS:
            named |= {"*", call.kind.plural}
        return (
            call.verb in self.verbs
            and self.group in ("*", call.group)
            and not named.isdisjoint(self.resources)
        )


def _rule(user: str, group: str, resources: str, verbs: frozenset[str]) -> Rule:
    return Rule(user, group, frozenset(resources.split()), verbs)


PROMETHEUS = "system:serviceaccount:monitoring:prometheus"
"""The one account beside administrators that may read ``/metrics``, and can do nothing else."""
_KUBEVIRT = "system:serviceaccount:kubevirt:"
_NODE = "system:node:"
_STORAGE = "system:serviceaccount:corral:storage"
RULES = (
    _rule("system:serviceaccount:kube-system:", "*", "*", _WRITE),
    _rule("system:kube-scheduler", "", "pods nodes namespaces events", _WRITE),
    _rule("system:kube-scheduler", "", "persistentvolumeclaims persistentvolumes", _WRITE),
    _rule("system:kube-scheduler", "storage.k8s.io", "storageclasses", _READ),
    _rule("system:kube-scheduler", "events.k8s.io", "events", _WRITE),
    _rule("system:kube-controller-manager", "*", "*", _WRITE),
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


def authorize_metrics(user: User) -> None:
    """Raises Forbidden: what is measured names objects of every namespace."""
    if ADMINISTRATORS not in user.groups and user.name != PROMETHEUS:
        raise Forbidden(f'forbidden: User "{user.name}" cannot get path "/metrics"')


def authorize_metric(user: User, named: Route) -> None:
    """May they read metrics of objects, or of what is none?  Raises Forbidden.

    Who may do everything with a group may: loops that stand in for Kubernetes' own, above all.
    """
    if ADMINISTRATORS in user.groups:
        return
    if CREDENTIAL not in user.extra and any(
        user.name.startswith(rule.user) and rule.group == "*" and "*" in rule.resources
        for rule in RULES
    ):
        return
    of = f"{named.plural}/{named.subresource}" if named.subresource else named.plural
    scope = f'in the namespace "{named.namespace}"' if named.namespace else "at the cluster scope"
    raise Forbidden(
        f'{of}.{named.group} is forbidden: User "{user.name}" cannot get resource "{of}" in API '
        f'group "{named.group}" {scope}'
    )


def authorize(call: Call) -> None:
    """Raises Forbidden."""
    if ADMINISTRATORS in call.user.groups:
        return
    if CREDENTIAL not in call.user.extra and any(
        call.user.name.startswith(rule.user) and rule.allows(call) for rule in RULES
    ):
        return
    raise _forbidden(call)


def _forbidden(call: Call) -> Forbidden:
    """The refusal in the words of Kubernetes' RBAC."""
    kind = call.kind
    target = f"{kind.plural}/{call.subresource}" if call.subresource else kind.plural
    scope = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    named = f' "{call.name}"' if call.name else ""
    return Forbidden(
        f'{kind.resource}{named} is forbidden: User "{call.user.name}" cannot {call.verb} resource '
        f'"{target}" in API group "{call.group}" {scope}',
        details=Details(name=call.name, group=kind.group, kind=kind.plural),
    )
