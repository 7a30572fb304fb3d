"""Acting for others: who may say that they are somebody else, by headers (Kubernetes').

Each part of whom one wants to be is to be allowed by itself, with the verb ``impersonate``: the
user or ServiceAccount, each group, the uid, each extra.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from corral.api.errors import BadRequest
from corral.api.request import Request, User
from corral.server.authn.authenticator import ANONYMOUS, AUTHENTICATED
from corral.server.authn.service_accounts import PREFIX, user_groups
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer

MOST_PARTS: Final = 1000

_PREFIX: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_UNAUTHENTICATED: Final = ANONYMOUS.groups[0]
_AUTHENTICATION: Final = "authentication.k8s.io"


def impersonated(authorizer: Authorizer, request: Request, user: User) -> User:
    """As whom a request is to be answered: who sent it, or whom they act for.

    Raises BadRequest for what names nobody, Forbidden and Unauthorized for who may not.
    """
    headers = request.headers
    if not any(name.startswith(_PREFIX) for name in headers):
        return user
    wanted = _wanted(headers)
    parts = list(_parts(user, wanted, _names(headers.get("impersonate-group", ""))))
    if len(parts) > MOST_PARTS:
        raise BadRequest(f"more than {MOST_PARTS} groups and extras to impersonate")
    for part in parts:
        authorizer.require(part, inside=user is request.user)
    return wanted


def _wanted(headers: Mapping[str, str]) -> User:
    name = headers.get("impersonate-user", "")
    if not name:
        raise BadRequest("requested groups, uid or extra without impersonating a user")
    extra = {
        unquote(header.removeprefix(_EXTRA)): _names(value)
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    }
    groups = _names(headers.get("impersonate-group", ""))
    if not groups and (account := _account(name)) is not None:
        groups = user_groups(account[0])
    given = _UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if not {AUTHENTICATED, _UNAUTHENTICATED} & set(groups):
        groups = (*groups, given)
    return User(name=name, groups=groups, uid=headers.get("impersonate-uid", ""), extra=extra)


def _parts(user: User, wanted: User, groups: tuple[str, ...]) -> Iterator[Attributes]:
    """What has to be allowed; groups that come with a user by themselves have not."""
    if (account := _account(wanted.name)) is not None:
        namespace, name = account
        yield Attributes(user, "impersonate", "", "serviceaccounts", "", namespace, name)
    else:
        yield Attributes(user, "impersonate", "", "users", name=wanted.name)
    for group in groups:
        yield Attributes(user, "impersonate", "", "groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(user, "impersonate", _AUTHENTICATION, "userextras", key, name=value)
    if wanted.uid:
        yield Attributes(user, "impersonate", _AUTHENTICATION, "uids", name=wanted.uid)


def _account(name: str) -> tuple[str, str] | None:
    """The namespace and name of the ServiceAccount that a user's name tells of."""
    if not name.startswith(PREFIX):
        return None
    namespace, _, account = name.removeprefix(PREFIX).partition(":")
    return (namespace, account) if namespace and account and ":" not in account else None


def _names(header: str) -> tuple[str, ...]:
    """The values of a header that may come several times: each is a line then."""
    return tuple(name for name in header.split("\n") if name)
