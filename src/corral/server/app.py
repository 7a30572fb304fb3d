"""The handler of every request: authentication, routing, authorization, then the verb.

``ApiServer.handle`` is independent of the HTTP library: connections reach it through ``asgi``,
components of this process call it directly, and both are subject to the same checks.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import structlog
from starlette.types import ASGIApp

from corral.api.errors import ApiError, InternalError, TooLarge
from corral.api.images import HOST_PATHS
from corral.api.kinds import KINDS
from corral.api.kinds.table import KindTable
from corral.api.request import Request, Response, User
from corral.metrics import Registry
from corral.pki import SigningKey
from corral.server.admission.dynamic import reviewers_of
from corral.server.admission.plugins import Plugins
from corral.server.admission.service_allocation import ServiceRanges
from corral.server.audit import Audit, Audited
from corral.server.authn.authenticator import ANONYMOUS, Authenticator
from corral.server.authn.service_accounts import flow_name
from corral.server.authn.token_review import IdentityReviews
from corral.server.authz import Authorizer
from corral.server.authz.access_review import Reviews as AccessReviews
from corral.server.authz.impersonation import impersonated
from corral.server.dashboard.page import Page
from corral.server.dashboard.sign_in import SignIn
from corral.server.discovery.custom_resources import Definitions
from corral.server.discovery.nonresource import Documents
from corral.server.flowcontrol.fairness import Fairness
from corral.server.metrics.custom import Adapter
from corral.server.metrics.remote_usage import RemoteUsage
from corral.server.metrics.resource_metrics import Observations, Observe
from corral.server.metrics.server import Metrics, RequestLabels
from corral.server.node_proxy.forwarding import Forward, Nodes
from corral.server.registry.rest import Rest
from corral.server.registry.verbs import Verbs
from corral.server.registry.watch import Watches
from corral.server.request import route
from corral.server.request.call import Call
from corral.server.request.route import Route
from corral.server.request.timeout import deadline_of, within
from corral.server.response import not_found, warning_headers
from corral.server.response.encodings import Encodings, Recode
from corral.server.response.errors import error_response
from corral.server.subresources.cdi_upload import Uploads
from corral.server.subresources.subresources import Subresources, parse_call
from corral.server.transport.sessions import Sessions
from corral.store import Store

MAX_BODY_BYTES = 3 << 20

log = structlog.get_logger()

ReadBody = Callable[[], Awaitable[bytes]]
"""Reads the body of a request; raises ApiError."""


@dataclass(slots=True)
class _Exchange:
    """A request in progress: its metric labels, warnings, and audit event."""

    request: Request
    read_body: ReadBody | None
    labels: RequestLabels | None = None
    sender: User | None = None
    audited: Audited | None = None
    warnings: list[str] = field(default_factory=list)
    recode: Recode | None = None
    """Re-encodes the response, if the client accepts another encoding than JSON."""


def _no_nodes(_name: str) -> None:
    return None


class ApiServer:
    """A Kubernetes API over a store.

    ``kinds`` is read for each request, so kinds may be added while it runs.  ``nodes`` finds the
    ASGI app of a node's agent, to which logs and consoles are forwarded.  ``services`` are the
    ranges of Services' addresses and ports.  ``account_key`` signs tokens of ServiceAccounts.
    ``observed`` reads present usage, by the resource of metrics.k8s.io that reports it;
    ``remote_nodes`` finds the kubelets of nodes whose usage it lacks.
    ``uploads`` receives the content of PVCs from authorized clients; ``host`` serves the
    images and volumes of this host to nodes of other hosts.  ``metrics`` is the registry
    behind ``/metrics``, to which the server adds its own.  ``adapter`` serves custom and external
    metrics; without it there are no such APIs.
    """

    def __init__(
        self,
        store: Store,
        kinds: KindTable = KINDS,
        *,
        authenticator: Authenticator | None = None,
        nodes: Nodes = _no_nodes,
        services: ServiceRanges | None = None,
        account_key: SigningKey | None = None,
        uploads: ASGIApp | None = None,
        host: ASGIApp | None = None,
        observed: Mapping[str, Observe] = MappingProxyType({}),
        remote_nodes: Nodes = _no_nodes,
        metrics: Registry | None = None,
        adapter: Adapter | None = None,
        audit: Audit | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.kinds = kinds = KindTable(kinds)  # a copy, because definitions add kinds
        self._definitions = Definitions(store, kinds)
        self.authenticator = (authenticator or Authenticator()).over(store, account_key, now)
        self.sessions = Sessions(store, self.authenticator)
        self.authorizer = Authorizer(store)
        self.reviewers = reviewers_of(store, kinds, self.authorizer)
        self.rest = Rest(
            store,
            now,
            plugins=Plugins.of(store, self.authorizer, services or ServiceRanges(), now).within(
                kinds
            ),
            accounts=self.authenticator.accounts,
            reviewers=self.reviewers,
            admit=self._admit,
        )
        self.fairness = Fairness(store)
        self.watches = Watches(self.rest, self.fairness)
        self.subresources = Subresources(self.rest, nodes)
        self.uploads = Uploads(store, now, uploads, nodes)
        self._host = host
        self._page = Page()
        self._sign_in = SignIn(self.authenticator, self.sessions)
        self._verbs = Verbs(
            self.rest,
            self.watches,
            subresources=self.subresources.answer,
            answers={
                **self.uploads.answers(),
                **IdentityReviews(self.authenticator).answers(),
                **AccessReviews(self.authorizer).answers(),
                **Observations(self.rest, observed, RemoteUsage(remote_nodes)).answers(),
            },
        )
        self._encodings = Encodings(self.fairness.responses)
        self._adapter = adapter
        self._audit = audit
        self._metrics = Metrics(kinds, store, self.fairness)
        registry = metrics or Registry()
        registry.add("server", self._metrics.families)
        if audit is not None:
            registry.add("audit", audit.families)
        self.documents = Documents(
            kinds,
            store,
            registry,
            self.authorizer,
            adapter,
            account_key=self.rest.accounts.key,
            audit=audit,
        )

    async def handle(self, request: Request, read_body: ReadBody | None = None) -> Response:
        """Respond to a request; errors are responses, too.

        ``read_body`` reads the body of a request of which only the head has been received: called
        only once the sender is authenticated and authorized.
        """
        started = time.monotonic()
        exchange = _Exchange(request, read_body)
        try:
            response = await self._respond(exchange)
        except ApiError as error:
            response = error_response(error)
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            response = error_response(
                InternalError("the server failed at this request; its log says why")
            )
        response.headers += warning_headers.headers(exchange.warnings)
        if self._audit is not None:
            response = self._audit.response_ready(
                exchange.audited, request, response, exchange.sender
            )
        labels = exchange.labels or RequestLabels.by_method(request.method)
        self._metrics.record_response(labels, response.status, time.monotonic() - started)
        return response if exchange.recode is None else exchange.recode(response)

    async def _respond(self, exchange: _Exchange) -> Response:
        """Return the response in JSON, for the audit log, and set the re-encoded one beside it."""
        deadline = None
        try:
            deadline = deadline_of(exchange.request)
            response = await within(deadline, partial(self._answer, exchange))
        except ApiError as error:
            response = error_response(error)
        exchange.recode = await self._encodings.recoded(exchange.request, response, deadline)
        return response

    async def _answer(self, exchange: _Exchange) -> Response:
        request = exchange.request
        sender = exchange.sender = self.authenticator.user(request)
        request.sender = flow_name(sender)
        user = impersonated(self.authorizer, request, sender)
        self._definitions.sync()
        parsed_route = route.parse(request.path)
        if self._audit is not None:
            exchange.audited = self._audit.request_received(request, parsed_route, user, sender)
        if parsed_route is None:
            return (
                self._page.answer(request)
                or await self._sign_in.answer(request, sender, user, exchange.read_body)
                or self._serve_host(request, user)
                or await self.documents.answer(request, user)
            )
        if self._adapter is not None and self._adapter.serves(parsed_route):
            exchange.labels = RequestLabels.by_method(request.method)._replace(
                group=parsed_route.group, version=parsed_route.version
            )
            verb = route.verb(request.method, parsed_route, watch=parsed_route.watch)
            self.authorizer.admit(request, user, verb, parsed_route)
            return await self._adapter.answer(self.store, self.kinds, request, parsed_route)
        if self.documents.serves(request.path):
            return await self.documents.answer(request, user)
        call = self.call(request, user, parsed_route, exchange.warnings)
        if call is None:
            return not_found.answer(self.kinds, parsed_route)
        if user is not ANONYMOUS:
            exchange.labels = RequestLabels.by(call)
        self.authorizer.admit(request, user, call.verb, parsed_route)
        if exchange.read_body is None:
            return await self._execute(exchange, call)
        with self.fairness.reserve_body(request, MAX_BODY_BYTES):
            request.body = await exchange.read_body()
            return await self._execute(exchange, call)

    def _serve_host(self, request: Request, user: User) -> Response | None:
        """Return where to forward a request of another host; None for other requests."""
        path = request.path
        if self._host is None or path not in HOST_PATHS or request.method != "GET":
            return None
        self.authorizer.admit_path(request, user, path)
        state = {"user": user.name}
        return Forward(app=self._host, path=path, query=request.query, state=state)

    async def _execute(self, exchange: _Exchange, call: Call) -> Response:
        request = call.request
        if len(request.body) > MAX_BODY_BYTES:
            raise TooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
        if call.version.deprecated:
            usual = f"{call.api_version} is now deprecated and will be removed in a future release."
            exchange.warnings.append(call.version.warning or usual)
        return await self.fairness.serve(call, self._verbs.answer)

    def _admit(self, call: Call) -> None:
        """Authorize a call whose verb changed on the way: an apply or update that creates."""
        if (parsed_route := route.parse(call.request.path)) is not None:
            self.authorizer.admit(call.request, call.user, call.verb, parsed_route)

    def call(
        self, request: Request, user: User, parsed_route: Route, warnings: list[str]
    ) -> Call | None:
        """Return the call of a request to a resource; None if there is no such resource.

        Raises BadRequest for an invalid query; Forbidden and Unauthorized for users who may not
        even learn that there is no such resource.
        """
        verb, call = parse_call(self.kinds, request, user, parsed_route, warnings)
        if call is None:
            self.authorizer.admit(request, user, verb, parsed_route)
        return call
