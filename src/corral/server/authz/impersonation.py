"""Impersonation by Kubernetes' Impersonate headers.

Each part of the impersonated user requires a right with the verb ``impersonate``: the user or
ServiceAccount, each group, the uid, each extra.
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

MAX_PARTS: Final = 1000

_PREFIX: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_UNAUTHENTICATED: Final = ANONYMOUS.groups[0]
_AUTHENTICATION: Final = "authentication.k8s.io"


def impersonated(authorizer: Authorizer, request: Request, user: User) -> User:
    """Return the impersonated user of a request, or its sender.

    Raises BadRequest for incomplete headers, Forbidden and Unauthorized without the rights.
    """
    headers = request.headers
    if not any(name.startswith(_PREFIX) for name in headers):
        return user
    impersonated_user = _impersonated_user(headers)
    rights = list(
        _required_rights(user, impersonated_user, _names(headers.get("impersonate-group", "")))
    )
    if len(rights) > MAX_PARTS:
        raise BadRequest(f"more than {MAX_PARTS} groups and extras to impersonate")
    for right in rights:
        authorizer.require(right, is_component=request.is_component(user))
    return impersonated_user


def _impersonated_user(headers: Mapping[str, str]) -> User:
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
    authentication_group = _UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if not {AUTHENTICATED, _UNAUTHENTICATED} & set(groups):
        groups = (*groups, authentication_group)
    return User(name=name, groups=groups, uid=headers.get("impersonate-uid", ""), extra=extra)


def _required_rights(
    user: User, impersonated_user: User, groups: tuple[str, ...]
) -> Iterator[Attributes]:
    """Yield the required rights; groups that are implied by the user require none."""
    if (account := _account(impersonated_user.name)) is not None:
        namespace, name = account
        yield Attributes(user, "impersonate", "", "serviceaccounts", "", namespace, name)
    else:
        yield Attributes(user, "impersonate", "", "users", name=impersonated_user.name)
    for group in groups:
        yield Attributes(user, "impersonate", "", "groups", name=group)
    for key, values in impersonated_user.extra.items():
        for value in values:
            yield Attributes(user, "impersonate", _AUTHENTICATION, "userextras", key, name=value)
    if impersonated_user.uid:
        yield Attributes(user, "impersonate", _AUTHENTICATION, "uids", name=impersonated_user.uid)


def _account(name: str) -> tuple[str, str] | None:
    """Return the namespace and name of the ServiceAccount of a user name, or None."""
    if not name.startswith(PREFIX):
        return None
    namespace, _, account = name.removeprefix(PREFIX).partition(":")
    return (namespace, account) if namespace and account and ":" not in account else None


def _names(header: str) -> tuple[str, ...]:
    """Return the values of a repeatable header, which the ASGI layer joins by newlines."""
    return tuple(name for name in header.split("\n") if name)
