"""The way of every request: who asks, what for, may they, then the verb.

``ApiServer.handle`` knows no HTTP library: sockets come in through ``asgi``, components of this
process call it directly, and both meet the same rules.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import structlog
from starlette.types import ASGIApp

from corral.api.errors import ApiError, InternalError, TooLarge
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
from corral.server.authn.service_accounts import counted_as
from corral.server.authn.token_review import IdentityReviews
from corral.server.authz import Authorizer
from corral.server.authz.access_review import Reviews as AccessReviews
from corral.server.authz.impersonation import acting
from corral.server.discovery.custom_resources import Definitions
from corral.server.discovery.nonresource import Documents
from corral.server.flowcontrol.fairness import Fairness
from corral.server.metrics.custom import Adapter
from corral.server.metrics.resource_metrics import Observations, Observe
from corral.server.metrics.server import Asked, Metrics
from corral.server.node_proxy.forwarding import Nodes
from corral.server.registry.rest import Rest
from corral.server.registry.verbs import Verbs
from corral.server.registry.watch import Watches
from corral.server.request import query, route
from corral.server.request.call import Call
from corral.server.request.route import Route
from corral.server.request.timeout import deadline_of, within
from corral.server.response import not_found, warning_headers
from corral.server.response.encodings import Encodings, Recode
from corral.server.response.errors import refusal
from corral.server.subresources import subresources
from corral.server.subresources.cdi_upload import Uploads
from corral.server.subresources.subresources import Subresources
from corral.server.transport.sessions import Sessions
from corral.store import Store

LARGEST_BODY_BYTES = 3 << 20

log = structlog.get_logger()

ReadBody = Callable[[], Awaitable[bytes]]
"""Reads a body that is still to come; raises ApiError where it cannot be had."""


@dataclass(slots=True)
class _Asking:
    """A request on its way: as what it is counted, and what its sender is warned of."""

    request: Request
    read_body: ReadBody | None
    counted: Asked | None = None
    sender: User | None = None
    audited: Audited | None = None
    warnings: list[str] = field(default_factory=list)
    recode: Recode | None = None
    """Tells the answer in another encoding, where that is wanted."""


def _no_nodes(_name: str) -> None:
    return None


class ApiServer:
    """A Kubernetes API over a store.

    ``kinds`` is looked at for each request, so kinds may be added while it runs.  ``nodes`` finds
    the ASGI app of a node's agent, to which logs and consoles are forwarded.  ``services`` is
    where services' addresses and ports come from.  ``account_key`` signs tokens of ServiceAccounts.
    ``observed`` knows what objects are like at present, by the resources that tell of it.
    ``uploads`` takes the content of claims, from those whom the server lets.  ``metrics`` is what
    ``/metrics`` tells, and gets the server's own.  ``adapter`` answers what autoscalers ask of
    metrics that are somebody else's; without it there are no such APIs.
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
        observed: Mapping[str, Observe] = MappingProxyType({}),
        metrics: Registry | None = None,
        adapter: Adapter | None = None,
        audit: Audit | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.kinds = kinds = KindTable(kinds)  # its own: definitions bring more
        self._definitions = Definitions(store, kinds)
        self.authenticator = (authenticator or Authenticator()).over(store, account_key, now)
        self.sessions = Sessions(store, self.authenticator)
        self.authorizer = Authorizer(store)
        self.reviewers = reviewers_of(store, kinds, self.authorizer)
        self.rest = Rest(
            store,
            now,
            plugins=Plugins.of(store, self.authorizer, services or ServiceRanges(), now),
            accounts=self.authenticator.accounts,
            reviewers=self.reviewers,
            admit=self._admit,
        )
        self.turns = Fairness(store)
        self.watches = Watches(self.rest, self.turns)
        self.subresources = Subresources(self.rest, nodes)
        self.uploads = Uploads(store, now, uploads)
        self._verbs = Verbs(
            self.rest,
            self.watches,
            subresources=self.subresources.answer,
            answers={
                **self.uploads.answers(),
                **IdentityReviews(self.authenticator).answers(),
                **AccessReviews(self.authorizer).answers(),
                **Observations(self.rest, observed).answers(),
            },
        )
        self._encodings = Encodings(self.turns.answers)
        self._adapter = adapter
        self._audit = audit
        self._metrics = Metrics(kinds, store, self.turns)
        registry = metrics or Registry()
        registry.add("server", self._metrics.tell)
        if audit is not None:
            registry.add("audit", audit.tell)
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
        """Answer a request; refusals are answers, too.

        ``read_body`` fetches the body of a request of which only the head is here: it is asked only
        once it is known who sends it and that they may.
        """
        begun = time.monotonic()
        asking = _Asking(request, read_body)
        try:
            response = await self._told(asking)
        except ApiError as error:
            response = refusal(error)
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            response = refusal(InternalError("the server failed at this request; its log says why"))
        response.headers += warning_headers.headers(asking.warnings)
        if self._audit is not None:
            response = self._audit.answered(asking.audited, request, response, asking.sender)
        counted = asking.counted or Asked.by_method(request.method)
        self._metrics.answered(counted, response.status, time.monotonic() - begun)
        return response if asking.recode is None else asking.recode(response)

    async def _told(self, asking: _Asking) -> Response:
        """The answer in JSON, of which the audit log tells, and beside it its other encoding."""
        deadline = None
        try:
            deadline = deadline_of(asking.request)
            response = await within(deadline, partial(self._answer, asking))
        except ApiError as error:
            response = refusal(error)
        asking.recode = await self._encodings.recoded(asking.request, response, deadline)
        return response

    async def _answer(self, asking: _Asking) -> Response:
        request = asking.request
        sender = asking.sender = self.authenticator.user(request)
        request.sender = counted_as(sender)
        user = acting(self.authorizer, request, sender)
        self._definitions.follow()
        named = route.parse(request.path)
        if self._audit is not None:
            asking.audited = self._audit.received(request, named, user, sender)
        if named is None:
            return await self.documents.answer(request, user)
        if self._adapter is not None and self._adapter.serves(named):
            asking.counted = Asked.by_method(request.method)._replace(
                group=named.group, version=named.version
            )
            verb = route.verb(request.method, named, watch=named.watch)
            self.authorizer.admit(request, user, verb, named)
            return await self._adapter.answer(self.store, self.kinds, request, named)
        if self.documents.serves(request.path):
            return await self.documents.answer(request, user)
        call = self.call(request, user, named, asking.warnings)
        if call is None:
            return not_found.answer(self.kinds, named)
        if user is not ANONYMOUS:
            asking.counted = Asked.by(call)
        self.authorizer.admit(request, user, call.verb, named)
        if asking.read_body is None:
            return await self._carried_out(asking, call)
        with self.turns.body(request, LARGEST_BODY_BYTES):
            request.body = await asking.read_body()
            return await self._carried_out(asking, call)

    async def _carried_out(self, asking: _Asking, call: Call) -> Response:
        request = call.request
        if len(request.body) > LARGEST_BODY_BYTES:
            raise TooLarge(f"Request entity too large: limit is {LARGEST_BODY_BYTES}")
        if call.version.deprecated:
            usual = f"{call.api_version} is now deprecated and will be removed in a future release."
            asking.warnings.append(call.version.warning or usual)
        return await self.turns.serve(call, self._verbs.answer)

    def _admit(self, call: Call) -> None:
        """Let a call pass that came as another one: who applies may make what is not there."""
        if (named := route.parse(call.request.path)) is not None:
            self.authorizer.admit(call.request, call.user, call.verb, named)

    def call(self, request: Request, user: User, named: Route, warnings: list[str]) -> Call | None:
        """What a request to a resource means; None when there is no such resource.

        Raises BadRequest for a query that cannot be read; Forbidden and Unauthorized for who may
        not even learn that there is no such resource.
        """
        kind = subresources.kind_at(self.kinds, named)
        asked = query.parse(request.query)
        watched = request.method == "GET" and (named.watch or query.flag(asked, "watch"))
        verb = route.verb(request.method, named, watch=watched)
        if kind is None or not route.is_home(named, verb, namespaced=kind.namespaced):
            self.authorizer.admit(request, user, verb, named)
            return None
        return Call(
            request=request,
            user=user,
            verb=verb,
            kind=kind,
            group=named.group,
            version=kind.by_name.get(named.version, kind.versions[0]),
            namespace=named.namespace,
            name=named.name,
            subresource=subresources.name_of(named),
            query=asked,
            warnings=warnings,
        )
