"""Sign-in of the page: a one-use code for a user, a token for the code, and sign-out.

    POST   /dashboard/sign-in   with credentials of any kind      {code, expiresAt}
    POST   /dashboard/session   {code}                            {token, expiresAt, user}
    DELETE /dashboard/session   with the token                    ends it, and its streams

``corral dashboard`` sends the first, the page the others.  Bodies are small: the second is read
from clients that are not authenticated yet.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from corral.api.encoding import encode
from corral.api.errors import BadRequest, Forbidden, MethodNotAllowed, TooLarge, Unauthorized
from corral.api.request import Request, Response, User
from corral.api.time import rfc3339
from corral.server.authn.authenticator import ANONYMOUS, Authenticator, bearer
from corral.server.authn.token_review import user_info
from corral.server.authn.websocket_credentials import is_of_another_site
from corral.server.dashboard.page import PREFIX, SECURITY_HEADERS
from corral.server.transport.sessions import Sessions

SIGN_IN: Final = f"{PREFIX}/sign-in"
SESSION: Final = f"{PREFIX}/session"
MAX_BODY_BYTES: Final = 4 << 10
_HEADERS: Final = (
    ("content-type", "application/json"),
    ("cache-control", "no-store"),
    *SECURITY_HEADERS,
)

ReadBody = Callable[[], Awaitable[bytes]]


class _Code(msgspec.Struct):
    code: str


class SignIn:
    """The paths of sign-in and sign-out; ``sessions`` are the open streams."""

    def __init__(self, authenticator: Authenticator, sessions: Sessions) -> None:
        assert authenticator.browser_sessions is not None
        self._authenticator = authenticator
        self._grants = authenticator.browser_sessions
        self._streams = sessions

    async def answer(
        self, request: Request, sender: User, user: User, read_body: ReadBody | None
    ) -> Response | None:
        """Respond; None for other paths.  Raises ApiError.

        ``user`` is another than the sender if it is impersonated.
        """
        if request.path not in (SIGN_IN, SESSION):
            return None
        if is_of_another_site(request.headers):
            raise Forbidden(f"pages of {request.headers['origin']} cannot sign in here")
        if request.method == "POST":
            if request.path == SIGN_IN:
                return self._issue(request, sender, user)
            return self._redeem(await _body(request, read_body))
        if request.path == SESSION and request.method == "DELETE":
            self._grants.end(bearer(request))
            self._streams.check_all()
            return Response(status=204, headers=list(SECURITY_HEADERS))
        raise MethodNotAllowed(f"{SIGN_IN} is for POST, {SESSION} for POST and DELETE")

    def _issue(self, request: Request, sender: User, user: User) -> Response:
        if sender is ANONYMOUS:
            raise Unauthorized("Unauthorized")
        if user is not sender or request.is_in_process:
            raise Forbidden("a code is for a user's own credentials: impersonation gets none")
        code, ends = self._grants.issue_code(sender.name, request)
        return _created({"code": code, "expiresAt": rfc3339(ends)})

    def _redeem(self, body: bytes) -> Response:
        try:
            code = msgspec.json.decode(body, type=_Code).code
        except msgspec.MsgspecError as error:
            raise BadRequest(f'the body must be {{"code": "…"}}: {error}') from error
        redeemed = self._grants.redeem(code)
        if redeemed is None:
            raise Unauthorized(
                "the sign-in code was used before, or is older than a minute: "
                "run corral dashboard again"
            )
        token, session = redeemed
        user = self._authenticator.user(session.credentials)
        ends = self._authenticator.ends(
            Request(method="GET", path="/", headers={"authorization": f"Bearer {token}"})
        )
        assert ends is not None
        return _created({"token": token, "expiresAt": rfc3339(ends), "user": user_info(user)})


def _created(document: dict[str, object]) -> Response:
    return Response(status=201, headers=list(_HEADERS), body=encode(document))


async def _body(request: Request, read_body: ReadBody | None) -> bytes:
    """Return the body of a request.  Raises TooLarge before it reads one without a small length."""
    if read_body is None:
        return request.body
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        raise TooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
    return await read_body()
