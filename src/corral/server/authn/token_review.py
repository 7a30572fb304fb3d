"""Answers to who somebody is: the one who asks, or the one whose token it is."""

from typing import Any

from corral.api.encoding import encode
from corral.api.errors import BadRequest
from corral.api.kind import at
from corral.api.kinds.auth.authentication import SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from corral.api.object import Document
from corral.api.request import Response, User
from corral.api.time import rfc3339
from corral.server.authn.authenticator import Authenticator
from corral.server.request import accept, body, query
from corral.server.request.call import Call, Handler, json_response, storage
from corral.server.strategy.validation import conform, incoming


class IdentityReviews:
    """Answers SelfSubjectReviews and TokenReviews (authentication.k8s.io)."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def answers(self) -> dict[str, Handler]:
        """What answers each kind of question, by the name that it would be stored under."""
        return {
            storage(SELF_SUBJECT_REVIEW): self._answer_self,
            storage(TOKEN_REVIEW): self._answer_token,
        }

    async def _answer_self(self, call: Call) -> Response:
        """Who asks, as the server sees them: impersonation included."""
        document = _asked(call)
        document["metadata"]["creationTimestamp"] = rfc3339(self._authenticator.now())
        document["status"] = {"userInfo": user_info(call.user)}
        return json_response(encode(document), status=201)

    async def _answer_token(self, call: Call) -> Response:
        """Whose token it is, if it is for one of the audiences.  Raises BadRequest without one."""
        document = _asked(call)
        token = at(document, "spec", "token")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        audiences = at(document, "spec", "audiences") or ()
        found = self._authenticator.review(token, audiences)
        if found is None:
            document["status"] = {"user": {}, "error": "invalid bearer token"}
        else:
            user, matched = found
            document["status"] = {
                "authenticated": True,
                "user": user_info(user),
                "audiences": list(matched),
            }
        return json_response(encode(document), status=201)


def user_info(user: User) -> dict[str, Any]:
    """A user as the API tells one (UserInfo)."""
    known: dict[str, Any] = {"username": user.name}
    if user.uid:
        known["uid"] = user.uid
    if user.groups:
        known["groups"] = list(user.groups)
    if user.extra:
        known["extra"] = {name: list(values) for name, values in user.extra.items()}
    return known


def _asked(call: Call) -> Document:
    """The question, in its kind's form.  Nothing is kept of it, so a dry run changes nothing."""
    accept.require_not_table_only(call.request.headers.get("accept", ""))
    query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    document = incoming(call, body.read(call))
    conform(call, document)
    return document
