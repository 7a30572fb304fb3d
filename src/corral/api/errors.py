"""Errors of the API: an exception class for each Status reason.

- ApiError                     any response of status 4xx or 5xx
    - BadRequest          400
    - Unauthorized        401
    - Forbidden           403
    - NotFound            404
    - MethodNotAllowed    405
    - NotAcceptable       406
    - AlreadyExists       409  reason AlreadyExists
    - Conflict            409  reason Conflict: re-read and try again
    - Gone                410  reason Expired: the watch or list is too old, list again
    - TooLarge            413
    - UnsupportedMedia    415
    - Invalid             422  carries one cause per wrong field
    - TooManyRequests     429
    - InternalError       500
    - StoreReadError      500  the object is damaged on disk: it is neither there nor gone
    - Unavailable         503
    - Timeout             504
    - StorageFull         507

The server raises these and turns them into a ``Status``; the client turns a ``Status`` back into
the same class, so ``except NotFound`` means the same on both sides of the wire.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final

MAX_CAUSES = 100
"""Causes that are looked for and reported per document: without a bound, a response could be
hundreds of times as large as the request."""
LONGEST_ECHO = 200
"""Characters of a value that a message repeats."""
LONGEST_MESSAGE = 1000
"""Characters of the message of a cause, and of its path."""


def shortened(text: str, limit: int = LONGEST_ECHO) -> str:
    """Return the begin of a client's text, for messages."""
    return text if len(text) <= limit else f"{text[:limit]}..."


@dataclass(frozen=True, slots=True)
class Cause:
    """An invalid field: ``reason`` is Kubernetes' CauseType, e.g. ``FieldValueInvalid``."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


UNCHECKED: Final = Cause(
    "<nil>",
    'Invalid value: "null": some validation rules were not checked because the object was invalid; '
    "correct the existing errors to complete validation",
)
"""The last of causes that may be incomplete."""


def limited(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes for a response: shortened, and at most MAX_CAUSES.

    Consumes no more of an iterator, so that a generator of causes stops there.
    """
    found = list(islice(causes, MAX_CAUSES + 1))
    if len(found) > MAX_CAUSES:
        found[MAX_CAUSES - 1 :] = [UNCHECKED]
    return [
        Cause(
            shortened(cause.field, LONGEST_MESSAGE),
            shortened(cause.message, LONGEST_MESSAGE),
            cause.reason,
        )
        for cause in found
    ]


@dataclass(slots=True)
class Details:
    """Details of an error (meta/v1 StatusDetails)."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: Sequence[Cause] = ()
    retry_after_seconds: int = 0

    def document(self) -> dict[str, Any]:
        causes = [
            {"reason": cause.reason, "message": cause.message, "field": cause.field}
            for cause in self.causes
        ]
        fields = {
            "name": self.name,
            "group": self.group,
            "kind": self.kind,
            "uid": self.uid,
            "causes": causes,
            "retryAfterSeconds": self.retry_after_seconds,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(eq=False)
class ApiError(Exception):
    """An error response, with the fields of a Status."""

    message: str
    details: Details | None = field(default=None, kw_only=True)

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __str__(self) -> str:
        return self.message

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` document of this error."""
        document: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            document["details"] = self.details.document()
        document["code"] = self.code
        return document


class BadRequest(ApiError):
    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    code = 404
    reason = "NotFound"


class MethodNotAllowed(ApiError):
    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    code = 406
    reason = "NotAcceptable"


class AlreadyExists(ApiError):
    code = 409
    reason = "AlreadyExists"


class Conflict(ApiError):
    code = 409
    reason = "Conflict"


class Gone(ApiError):
    code = 410
    reason = "Expired"


class TooLarge(ApiError):
    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMedia(ApiError):
    code = 415
    reason = "UnsupportedMediaType"


class Invalid(ApiError):
    code = 422
    reason = "Invalid"


class TooManyRequests(ApiError):
    code = 429
    reason = "TooManyRequests"


class InternalError(ApiError):
    code = 500
    reason = "InternalError"


class StoreReadError(ApiError):
    """Kubernetes' StatusReasonStoreReadError."""

    code = 500
    reason = "StorageReadError"


class Unavailable(ApiError):
    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    code = 504
    reason = "Timeout"


class StorageFull(ApiError):
    code = 507
    reason = "InsufficientStorage"


ERRORS: Mapping[tuple[int, str], type[ApiError]] = {
    (error.code, error.reason): error for error in ApiError.__subclasses__()
}


def error_from_status(status: Mapping[str, Any], code: int) -> ApiError:
    """Return the error of a Status document; ``code`` is the HTTP status of the response."""
    fields = status.get("details") or {}
    details = Details(
        name=fields.get("name", ""),
        group=fields.get("group", ""),
        kind=fields.get("kind", ""),
        uid=fields.get("uid", ""),
        causes=tuple(
            Cause(cause.get("field", ""), cause.get("message", ""), cause.get("reason", ""))
            for cause in fields.get("causes") or ()
        ),
        retry_after_seconds=fields.get("retryAfterSeconds", 0),
    )
    code = status.get("code") or code
    kind = ERRORS.get((code, status.get("reason", ""))) or next(
        (error for error in ERRORS.values() if error.code == code), ApiError
    )
    return kind(status.get("message") or f"the server answered {code}", details=details)
