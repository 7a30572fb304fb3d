"""Tells the audit log of each request: when it came, when its answer began, and when it ended."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.request import Request, Response, User
from corral.api.time import rfc3339_micro
from corral.api.uid import random_uuid
from corral.metrics import Family, counter
from corral.server.audit import audit_event
from corral.server.audit.anonymous_quota import Strangers
from corral.server.audit.audit_log import Log
from corral.server.audit.audit_policy import API_VERSION, LEVELS, Level, Policy, Rule, Stage
from corral.server.authn.authenticator import ANONYMOUS
from corral.server.authn.token_review import user_info
from corral.server.node_proxy.forwarding import Forward
from corral.server.request import query, route
from corral.server.request.route import Route

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Audited:
    """A request that is told of: what is known of it by now."""

    rule: Rule
    level: Level
    document: dict[str, Any]
    stranger: bool = False
    """Whether nobody knows who sent it."""

    @property
    def id(self) -> str:
        found: str = self.document["auditID"]
        return found


UNTOLD: Final = Audited(Rule(level="None"), Level.NONE, {})
"""Any request that is not told of."""


class Audit:
    """What a policy wants to be told, put into a log.

    ``components``: also of what components of this process ask.  ``now`` is seconds since 1970,
    ``clock`` seconds that never go back.
    """

    def __init__(
        self,
        policy: Policy,
        log: Log,
        *,
        components: bool = True,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._components = components
        self._log = log
        self._now = now
        self._strangers = Strangers(lambda count: log.add(_told_omitted(count)), clock=clock)

    def received(
        self, request: Request, named: Route | None, user: User | None, sender: User | None = None
    ) -> Audited:
        """A request has come, from a user unless nobody knows them.

        ``sender`` acts for the user, where that is somebody else.
        """
        if request.user is not None and not self._components:
            return UNTOLD
        verb = _verb(request, named)
        rule = self._policy.find(sender or user, verb, named, request.path)
        if rule is None:
            return UNTOLD
        document = audit_event.of_request(request, sender or user, verb, named, rule.level)
        if sender is not None and user is not None and sender is not user:
            document["impersonatedUser"] = user_info(user)
        document["requestReceivedTimestamp"] = rfc3339_micro(self._now())
        request.explained = True
        stranger = (sender or user) in (None, ANONYMOUS)
        audited = Audited(rule, LEVELS[rule.level], document, stranger)
        self._tell(audited, "RequestReceived")
        return audited

    def answered(
        self,
        audited: Audited | None,
        request: Request,
        response: Response,
        sender: User | None = None,
    ) -> Response:
        """The answer is ready: a stream's end is told when it comes, everything else now.

        Of a request that was refused before it was known for whom it is, all is told now.
        """
        if audited is None:
            audited = self.received(request, route.parse(request.path), sender)
        if audited is UNTOLD:
            return response
        response.headers.append(("audit-id", audited.id))
        trim = self._policy.omits_managed_fields(audited.rule)
        if audited.level >= Level.REQUEST and request.body:
            audit_event.add_content(audited.document, "requestObject", request, trim=trim)
        audit_event.name_made(audited.document, request, response)
        audited.document["responseStatus"] = audit_event.status_of(response)
        if request.annotations:
            audited.document["annotations"] = {
                **audited.document.get("annotations", {}),
                **request.annotations,
            }
        if isinstance(response, Forward):
            if "upgrade" in request.headers:
                audited.document["responseStatus"]["code"] = 101
            self._tell(audited, "ResponseStarted")
            response.app = self._until_end(audited, response.app)
        elif not isinstance(response.body, bytes):
            self._tell(audited, "ResponseStarted")
            response.body = self._until_last(audited, response.body)
        else:
            if audited.level >= Level.REQUEST_RESPONSE:
                audit_event.add_content(audited.document, "responseObject", response, trim=trim)
            self._tell(audited, "ResponseComplete")
        return response

    async def tell(self) -> Iterable[Family]:
        """How many events there were, for metrics."""
        total = counter("apiserver_audit_event_total", "Events in the audit log.")
        total.add(self._log.written)
        failed = counter(
            "apiserver_audit_error_total",
            "Events that could not be written to the audit log: they wait, or are lost.",
        )
        failed.add(self._log.refused + self._log.lost, {"plugin": "log"})
        lost = counter("corral_audit_lost_events_total", "Events that the audit log has lost.")
        lost.add(self._log.lost)
        omitted = counter(
            "corral_audit_omitted_events_total",
            "Events of clients without good credentials that were too many for the audit log.",
        )
        omitted.add(self._strangers.omitted)
        return total, failed, lost, omitted

    @property
    def fault(self) -> str:
        """Why nothing can be written to the log now, and to which; empty where it can be."""
        fault = self._log.fault
        return f"{self._log.path} cannot be written: {fault}" if fault else ""

    async def aclose(self) -> None:
        self._strangers.settle()
        await self._log.close()

    def _tell(self, audited: Audited, stage: Stage) -> None:
        if self._policy.omits(audited.rule, stage):
            return
        told = {**audited.document, "stage": stage, "stageTimestamp": rfc3339_micro(self._now())}
        line = _encode(told) + b"\n"
        if not audited.stranger or self._strangers.admit(len(line)):
            self._log.add(line)

    async def _until_last(
        self, audited: Audited, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(body):
                async for piece in body:
                    yield piece
        finally:
            self._tell(audited, "ResponseComplete")

    def _until_end(self, audited: Audited, app: ASGIApp) -> ASGIApp:
        async def forwarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            finally:
                self._tell(audited, "ResponseComplete")

        return forwarded


def _verb(request: Request, named: Route | None) -> str:
    if named is None:
        return request.method.lower()
    flagged = "watch" in request.query and query.flag(query.parse(request.query), "watch")
    watched = request.method == "GET" and (named.watch or flagged)
    return route.verb(request.method, named, watch=watched)


def told_lost(count: int) -> bytes:
    """The line of a log that tells of lines that are not in it."""
    return _note({"corral.dev/lost-events": str(count)})


def _told_omitted(count: int) -> bytes:
    """The line that tells of what was left out of those whom nobody knows."""
    return _note({"corral.dev/omitted-events": str(count)})


def _note(annotations: dict[str, str]) -> bytes:
    told = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": "Metadata",
        "auditID": random_uuid(),
        "stage": "ResponseComplete",
        "stageTimestamp": rfc3339_micro(time.time()),
        "annotations": annotations,
    }
    return _encode(told) + b"\n"
