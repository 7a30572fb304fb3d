"""Who asks: bearer tokens, and components of this process that are known already."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from corral.api.errors import BadRequest, Forbidden, Unauthorized
from corral.api.wire import Request, User
from corral.server.accounts import Accounts

ADMINISTRATORS = "system:masters"
AUTHENTICATED = "system:authenticated"
ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
ADMINISTRATOR = User(name="kubernetes-admin", groups=(ADMINISTRATORS, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Finds the user of a request.

    ``tokens`` are secrets, each with its user; ``accounts`` knows those of ServiceAccounts.
    """

    tokens: Mapping[str, User] = field(default_factory=dict, repr=False)
    accounts: Accounts | None = None

    def user(self, request: Request) -> User:
        """Raises Unauthorized, and Forbidden or BadRequest for who cannot act for another."""
        user = request.user or self._by_token(request.headers.get("authorization", ""))
        if "impersonate-user" not in request.headers:
            if any(name.startswith("impersonate-") for name in request.headers):
                raise BadRequest("requested groups, uid or extra without impersonating a user")
            return user
        if ADMINISTRATORS not in user.groups:
            raise Forbidden(
                f'users "{request.headers["impersonate-user"]}" is forbidden: User "{user.name}" '
                'cannot impersonate resource "users" in API group "" at the cluster scope'
            )
        groups = request.headers.get("impersonate-group", "")
        named = tuple(group.strip() for group in groups.split(",") if group.strip())
        return User(name=request.headers["impersonate-user"], groups=(*named, AUTHENTICATED))

    def _by_token(self, header: str) -> User:
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode()
            # every token is compared, in a time that tells nothing about it
            found = [
                user
                for known, user in self.tokens.items()
                if hmac.compare_digest(known.encode(), given)
            ]
            if found:
                return found[0]
            user = self.accounts.user(token.strip()) if self.accounts is not None else None
            if user is not None:
                return user
        raise Unauthorized("Unauthorized")
