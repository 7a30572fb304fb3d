"""The authorizer: administrators, components of this process, and RBAC for all others."""

from typing import Final, Protocol

from corral.api.errors import Unauthorized
from corral.api.request import Request, User
from corral.server.authn.authenticator import ADMINISTRATORS, ANONYMOUS
from corral.server.authz import components
from corral.server.authz.attributes import Attributes, forbidden, of_route
from corral.server.authz.node_authorizer import NodeAuthorizer
from corral.server.authz.policy_rules import PolicyRule
from corral.server.authz.roles import Roles
from corral.server.request.route import Route
from corral.store import Store

_DECISION: Final = "authorization.k8s.io/decision"
_REASON: Final = "authorization.k8s.io/reason"
_CONNECT_SUBRESOURCES: Final = frozenset({"exec", "attach", "portforward"})


class Rights(Protocol):
    """Decides on rights: the Authorizer here, or another API server."""

    def allows(self, attributes: Attributes, *, is_component: bool = False) -> bool: ...


class Authorizer:
    """Authorizes by the roles of a store.

    ``is_component``: the user is a component of this process, which has fixed rights besides.  The
    user of a request from outside never is, whatever its name.
    """

    def __init__(self, store: Store) -> None:
        self.roles = Roles(store)
        self._nodes = NodeAuthorizer(store)

    def admit(self, request: Request, user: User, verb: str, parsed_route: Route) -> None:
        """Authorize a request to a resource.  Raises Forbidden, and Unauthorized if anonymous.

        Connecting to a pod by a websocket, a GET, needs the right to ``create``, too: the right to
        ``get`` must not suffice (Kubernetes since 1.35).
        """
        if ADMINISTRATORS in user.groups:
            if request.explained:
                _annotate(request, "allow", "")
            return
        attributes = of_route(user, verb, parsed_route, request.query)
        self._admit(request, attributes)
        if (
            verb == "get"
            and attributes.subresource in _CONNECT_SUBRESOURCES
            and attributes[2:4] == ("", "pods")
        ):
            self._admit(request, attributes._replace(verb="create"))

    def admit_path(self, request: Request, user: User, path: str) -> None:
        """Authorize a request to a non-resource URL.  Raises as ``admit`` does."""
        verb = "get" if request.method == "HEAD" else request.method.lower()
        self._admit(request, Attributes(user, verb, path=path or "/"))

    def _admit(self, request: Request, attributes: Attributes) -> None:
        is_component = request.is_component(attributes.user)
        if request.explained:
            allowed, reason = self.verdict(attributes, is_component=is_component)
            _annotate(request, "allow" if allowed else "forbid", reason)
        self.require(attributes, is_component=is_component)

    def require(self, attributes: Attributes, *, is_component: bool = False) -> None:
        """Check a right.  Raises Forbidden; Unauthorized for the anonymous user."""
        if self.allows(attributes, is_component=is_component):
            return
        if attributes.user is ANONYMOUS:
            raise Unauthorized("Unauthorized")
        raise forbidden(attributes, self.roles.missing_roles(attributes.user, attributes.namespace))

    def allows(self, attributes: Attributes, *, is_component: bool = False) -> bool:
        if ADMINISTRATORS in attributes.user.groups:
            return True
        if is_component and components.allow(attributes):
            return True
        if self._nodes.allows(attributes):
            return True
        return self.roles.rules(attributes.user, attributes.namespace).allow(attributes)

    def verdict(self, attributes: Attributes, *, is_component: bool = False) -> tuple[bool, str]:
        """Return whether a right is granted, and the granting binding or the missing roles."""
        allowed = self.allows(attributes, is_component=is_component)
        return allowed, self._reason(attributes, allowed=allowed)

    def reason(self, attributes: Attributes, *, is_component: bool = False) -> str:
        """Return the granting binding or the missing roles; searches all bindings of the user."""
        return self._reason(attributes, allowed=self.allows(attributes, is_component=is_component))

    def _reason(self, attributes: Attributes, *, allowed: bool) -> str:
        if allowed:
            return self.roles.reason(attributes)
        return self.roles.missing_roles(attributes.user, attributes.namespace)

    def rules(self, user: User, namespace: str) -> tuple[tuple[PolicyRule, ...], str]:
        """Return all rules of a user, and a message about missing roles."""
        return self.roles.rules(user, namespace).rules, self.roles.missing_roles(user, namespace)


def _annotate(request: Request, decision: str, reason: str) -> None:
    """Add the decision and its reason to the audit event."""
    request.annotations |= {_DECISION: decision, _REASON: reason}
