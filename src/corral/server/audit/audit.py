"""Audit events of each request: received, response started, and response complete."""

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
from corral.server.audit.anonymous_quota import AnonymousQuota
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
    """A request under audit, with its event so far."""

    rule: Rule
    level: Level
    document: dict[str, Any]
    is_anonymous: bool = False
    """True if its sender is not authenticated."""

    @property
    def id(self) -> str:
        found: str = self.document["auditID"]
        return found


NOT_AUDITED: Final = Audited(Rule(level="None"), Level.NONE, {})
"""Stands for every request that is not audited."""


class Audit:
    """Writes the events that a policy selects to a log.

    ``components``: also audit requests of components of this process.  ``now`` is seconds since
    1970, ``clock`` seconds that never go back.
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
        self._anonymous_quota = AnonymousQuota(
            lambda count: log.add(_omitted_events_line(count)), clock=clock
        )

    def request_received(
        self,
        request: Request,
        parsed_route: Route | None,
        user: User | None,
        sender: User | None = None,
    ) -> Audited:
        """Log the receipt of a request; ``user`` is None if it is not authenticated.

        ``sender`` is the user who impersonates ``user``, if they differ.
        """
        if request.is_in_process and not self._components:
            return NOT_AUDITED
        verb = _verb(request, parsed_route)
        rule = self._policy.find(sender or user, verb, parsed_route, request.path)
        if rule is None:
            return NOT_AUDITED
        document = audit_event.of_request(request, sender or user, verb, parsed_route, rule.level)
        if sender is not None and user is not None and sender is not user:
            document["impersonatedUser"] = user_info(user)
        document["requestReceivedTimestamp"] = rfc3339_micro(self._now())
        request.explained = True
        is_anonymous = (sender or user) in (None, ANONYMOUS)
        audited = Audited(rule, LEVELS[rule.level], document, is_anonymous)
        self._log_event(audited, "RequestReceived")
        return audited

    def response_ready(
        self,
        audited: Audited | None,
        request: Request,
        response: Response,
        sender: User | None = None,
    ) -> Response:
        """Log a response; the end of a stream is logged when it comes.

        For a request rejected before authentication, its receipt is logged first.
        """
        if audited is None:
            audited = self.request_received(request, route.parse(request.path), sender)
        if audited is NOT_AUDITED:
            return response
        response.headers.append(("audit-id", audited.id))
        trim = self._policy.omits_managed_fields(audited.rule)
        if audited.level >= Level.REQUEST and request.body:
            audit_event.add_content(audited.document, "requestObject", request, trim=trim)
        audit_event.add_created_name(audited.document, request, response)
        audited.document["responseStatus"] = audit_event.status_of(response)
        if request.annotations:
            audited.document["annotations"] = {
                **audited.document.get("annotations", {}),
                **request.annotations,
            }
        if isinstance(response, Forward):
            if "upgrade" in request.headers:
                audited.document["responseStatus"]["code"] = 101
            self._log_event(audited, "ResponseStarted")
            response.app = self._log_forward_end(audited, response.app)
        elif not isinstance(response.body, bytes):
            self._log_event(audited, "ResponseStarted")
            response.body = self._log_stream_end(audited, response.body)
        else:
            if audited.level >= Level.REQUEST_RESPONSE:
                audit_event.add_content(audited.document, "responseObject", response, trim=trim)
            self._log_event(audited, "ResponseComplete")
        return response

    async def families(self) -> Iterable[Family]:
        """Return the counters of events, for metrics."""
        total = counter("apiserver_audit_event_total", "Events in the audit log.")
        total.add(self._log.written)
        failed = counter(
            "apiserver_audit_error_total",
            "Events that could not be written to the audit log: they are pending, or lost.",
        )
        failed.add(self._log.refused + self._log.lost, {"plugin": "log"})
        lost = counter("corral_audit_lost_events_total", "Events that the audit log has lost.")
        lost.add(self._log.lost)
        omitted = counter(
            "corral_audit_omitted_events_total",
            "Events of unauthenticated clients omitted from the audit log: too many.",
        )
        omitted.add(self._anonymous_quota.omitted)
        return total, failed, lost, omitted

    @property
    def fault(self) -> str:
        """Reason why the log cannot be written now; empty if it can."""
        fault = self._log.fault
        return f"{self._log.path} cannot be written: {fault}" if fault else ""

    async def aclose(self) -> None:
        self._anonymous_quota.flush()
        await self._log.close()

    def _log_event(self, audited: Audited, stage: Stage) -> None:
        if self._policy.omits(audited.rule, stage):
            return
        event = {**audited.document, "stage": stage, "stageTimestamp": rfc3339_micro(self._now())}
        line = _encode(event) + b"\n"
        if not audited.is_anonymous or self._anonymous_quota.admit(len(line)):
            self._log.add(line)

    async def _log_stream_end(
        self, audited: Audited, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(body):
                async for chunk in body:
                    yield chunk
        finally:
            self._log_event(audited, "ResponseComplete")

    def _log_forward_end(self, audited: Audited, app: ASGIApp) -> ASGIApp:
        async def forwarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            finally:
                self._log_event(audited, "ResponseComplete")

        return forwarded


def _verb(request: Request, parsed_route: Route | None) -> str:
    if parsed_route is None:
        return request.method.lower()
    flagged = "watch" in request.query and query.flag(query.parse(request.query), "watch")
    watched = request.method == "GET" and (parsed_route.watch or flagged)
    return route.verb(request.method, parsed_route, watch=watched)


def lost_events_line(count: int) -> bytes:
    """Return a line that reports lost lines."""
    return _annotation_line({"corral.dev/lost-events": str(count)})


def _omitted_events_line(count: int) -> bytes:
    """Return a line that reports omitted lines of unauthenticated clients."""
    return _annotation_line({"corral.dev/omitted-events": str(count)})


def _annotation_line(annotations: dict[str, str]) -> bytes:
    event = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": "Metadata",
        "auditID": random_uuid(),
        "stage": "ResponseComplete",
        "stageTimestamp": rfc3339_micro(time.time()),
        "annotations": annotations,
    }
    return _encode(event) + b"\n"
