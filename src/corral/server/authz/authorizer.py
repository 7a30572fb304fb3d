"""Who may do what: administrators everything, components their work, others what roles say."""

from typing import Final

from corral.api.errors import Unauthorized
from corral.api.request import Request, User
from corral.server.authn.authenticator import ADMINISTRATORS, ANONYMOUS
from corral.server.authz import components
from corral.server.authz.attributes import Attributes, forbidden, of_route
from corral.server.authz.policy_rules import PolicyRule
from corral.server.authz.roles import Roles
from corral.server.request.route import Route
from corral.store import Store

_DECISION: Final = "authorization.k8s.io/decision"
_REASON: Final = "authorization.k8s.io/reason"
_INTO_PODS: Final = frozenset({"exec", "attach", "portforward"})


class Authorizer:
    """Decides by the roles of a store.

    ``inside`` tells that a user is a component of this process: who comes from outside is none,
    whatever their name.
    """

    def __init__(self, store: Store) -> None:
        self.roles = Roles(store)

    def admit(self, request: Request, user: User, verb: str, named: Route) -> None:
        """Let a request to a resource pass.  Raises Forbidden, and Unauthorized for nobody.

        Who goes into a pod by a websocket, which is a GET, needs what a POST would need, too: to
        read pods must not be enough (Kubernetes since 1.35).
        """
        if ADMINISTRATORS in user.groups:
            if request.explained:
                _explain(request, "allow", "")
            return
        wish = of_route(user, verb, named, request.query)
        self._admit(request, wish)
        if verb == "get" and wish.subresource in _INTO_PODS and wish[2:4] == ("", "pods"):
            self._admit(request, wish._replace(verb="create"))

    def admit_path(self, request: Request, user: User, path: str) -> None:
        """Let a request to what is no resource pass.  Raises as ``admit`` does."""
        verb = "get" if request.method == "HEAD" else request.method.lower()
        self._admit(request, Attributes(user, verb, path=path or "/"))

    def _admit(self, request: Request, wish: Attributes) -> None:
        inside = wish.user is request.user
        if request.explained:
            allowed, reason = self.verdict(wish, inside=inside)
            _explain(request, "allow" if allowed else "forbid", reason)
        self.require(wish, inside=inside)

    def require(self, wish: Attributes, *, inside: bool = False) -> None:
        """Raises Forbidden; Unauthorized for who has not said who they are."""
        if self.allows(wish, inside=inside):
            return
        if wish.user is ANONYMOUS:
            raise Unauthorized("Unauthorized")
        raise forbidden(wish, self.roles.fault(wish.user, wish.namespace))

    def allows(self, wish: Attributes, *, inside: bool = False) -> bool:
        if ADMINISTRATORS in wish.user.groups:
            return True
        if inside and components.allow(wish):
            return True
        return self.roles.rules(wish.user, wish.namespace).allow(wish)

    def verdict(self, wish: Attributes, *, inside: bool = False) -> tuple[bool, str]:
        """Whether something is allowed, and by what it is or what is amiss."""
        allowed = self.allows(wish, inside=inside)
        return allowed, self._reason(wish, allowed=allowed)

    def reason(self, wish: Attributes, *, inside: bool = False) -> str:
        """By what something is allowed, or what is amiss: looks through all bindings of a user."""
        return self._reason(wish, allowed=self.allows(wish, inside=inside))

    def _reason(self, wish: Attributes, *, allowed: bool) -> str:
        if allowed:
            return self.roles.reason(wish)
        return self.roles.fault(wish.user, wish.namespace)

    def rules(self, user: User, namespace: str) -> tuple[tuple[PolicyRule, ...], str]:
        """All rules that hold for a user, and which roles could not be found."""
        return self.roles.rules(user, namespace).rules, self.roles.fault(user, namespace)


def _explain(request: Request, decision: str, reason: str) -> None:
    """Tell the audit log what was decided, and why."""
    request.annotations |= {_DECISION: decision, _REASON: reason}
