"""What expressions are told of rights: those of who asks, and of service accounts."""

from collections.abc import Callable
from typing import TypeVar

from corral.api.cel.authorizer import Authorizer as Asked, Wish
from corral.api.request import User
from corral.server.admission.dynamic.attributes import Act
from corral.server.authn.authenticator import AUTHENTICATED
from corral.server.authn.service_accounts import user_groups, user_name
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer

T = TypeVar("T")


def asked(act: Act, authorizer: Authorizer) -> Asked:
    """The ``authorizer`` of expressions about an act."""
    call = act.call

    def asks(answer: Callable[..., T]) -> Callable[[Wish], T]:
        def ask(wish: Wish) -> T:
            user = call.user if wish.account is None else _account(*wish.account)
            named = {field: getattr(wish, field) for field in Attributes._fields if field != "user"}
            inside = user is call.request.user
            return answer(Attributes(user, **named), inside=inside)

        return ask

    kind = call.kind
    request = Wish("", kind.group, kind.plural, call.subresource, call.namespace, act.name)
    return Asked(asks(authorizer.allows), asks(authorizer.reason), request)


def _account(namespace: str, name: str) -> User:
    groups = (*user_groups(namespace), AUTHENTICATED)
    return User(name=user_name(namespace, name), groups=groups)
