"""SelfSubjectReviews and TokenReviews (authentication.k8s.io)."""

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
    """Handlers of reviews, by an authenticator's decisions."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def answers(self) -> dict[str, Handler]:
        """Return the handlers, by the resource name of the kind."""
        return {
            storage(SELF_SUBJECT_REVIEW): self._review_self,
            storage(TOKEN_REVIEW): self._review_token,
        }

    async def _review_self(self, call: Call) -> Response:
        """Return the requesting user, after impersonation."""
        document = _read_review(call)
        document["metadata"]["creationTimestamp"] = rfc3339(self._authenticator.now())
        document["status"] = {"userInfo": user_info(call.user)}
        return json_response(encode(document), status=201)

    async def _review_token(self, call: Call) -> Response:
        """Review a token for some audiences.  Raises BadRequest without a token."""
        document = _read_review(call)
        token = at(document, "spec", "token")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        audiences = at(document, "spec", "audiences") or ()
        reviewed = self._authenticator.review(token, audiences)
        if reviewed is None:
            document["status"] = {"user": {}, "error": "invalid bearer token"}
        else:
            user, matched = reviewed
            document["status"] = {
                "authenticated": True,
                "user": user_info(user),
                "audiences": list(matched),
            }
        return json_response(encode(document), status=201)


def user_info(user: User) -> dict[str, Any]:
    """Return a user as UserInfo (authentication/v1)."""
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _read_review(call: Call) -> Document:
    """Read and validate a review.  It is not stored, so a dry run is like any other request."""
    accept.require_not_table_only(call.request.headers.get("accept", ""))
    query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    document = incoming(call, body.read(call))
    conform(call, document)
    return document
