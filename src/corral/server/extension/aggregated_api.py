"""The aggregated API subresources.kubevirt.io, for users whom kube-apiserver names.

It authenticates the front proxy, has each right reviewed by the API server, and answers by the
handlers of the embedded server; requests for machines are forwarded to their nodes.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from corral.api.discovery import Discovery
from corral.api.errors import ApiError, InternalError
from corral.api.kinds import KINDS
from corral.api.kinds.table import KindTable
from corral.api.request import Request, Response, User
from corral.client.client import Client
from corral.server.asgi import (
    forward,
    read_body,
    refuse_websocket,
    request_of,
    send_response,
)
from corral.server.authz.attributes import of_route
from corral.server.discovery.nonresource import KUBEVIRT_PATHS, discovered, kubevirt
from corral.server.extension.front_proxy import FrontProxy
from corral.server.extension.remote_objects import RemoteObjects, RemoteRest
from corral.server.node_proxy import vmi_subresources
from corral.server.node_proxy.forwarding import Forward, Nodes
from corral.server.request import route
from corral.server.request.route import Route
from corral.server.response import not_found, plain_text, warning_headers
from corral.server.response.errors import error_response
from corral.server.subresources.catalog import NAMELESS, SUBRESOURCES
from corral.server.subresources.subresources import answer_kubevirt, parse_call

ReadBody = Callable[[], Awaitable[bytes]]
_LISTED: Final = tuple(
    each for each in (*SUBRESOURCES, *NAMELESS) if each.group == vmi_subresources.GROUP
)

log = structlog.get_logger()


async def _no_body() -> bytes:
    return b""


class AggregatedApi:
    """The API, as an ASGI app.

    ``client`` is of the API server, ``nodes`` finds the apps of its nodes; ``front_proxy`` returns
    the proxies that are trusted at present.
    """

    def __init__(self, client: Client, nodes: Nodes, front_proxy: Callable[[], FrontProxy]) -> None:
        self._client = client
        self._nodes = nodes
        self._front_proxy = front_proxy
        self._discovery = Discovery(KindTable(), _LISTED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_user_header = self._front_proxy().is_user_header
        if scope["type"] == "websocket":
            method = scope.get("state", {}).get("method", "GET")
            request = request_of(scope, method, is_user_header=is_user_header)
            response = await self.handle(request)
        else:
            request = request_of(scope, scope["method"], is_user_header=is_user_header)
            response = await self.handle(request, partial(read_body, request, receive))
        if isinstance(response, Forward):
            await forward(scope, response, receive, send)
        elif scope["type"] == "websocket":
            await refuse_websocket(response, send)
        else:
            assert isinstance(response.body, bytes)
            await send_response(response, response.body, send)

    async def handle(self, request: Request, body: ReadBody = _no_body) -> Response:
        """Respond to a request; errors are responses, too.  ``body`` reads its body."""
        warnings: list[str] = []
        try:
            user = self._front_proxy().authenticate(request)
            response = await self._answer(request, user, body, warnings)
        except ApiError as error:
            response = error_response(error)
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            response = error_response(
                InternalError("corral's controllers failed at this request; their log says why")
            )
        response.headers += warning_headers.headers(warnings)
        return response

    async def _answer(
        self, request: Request, user: User, body: ReadBody, warnings: list[str]
    ) -> Response:
        if (name := KUBEVIRT_PATHS.get(request.path.rstrip("/"))) is not None:
            return kubevirt(name)
        parsed_route = route.parse(request.path)
        if parsed_route is None:
            found = discovered(self._discovery, request.path.rstrip("/"), request)
            return found or plain_text.not_found()
        objects = RemoteObjects(self._client)
        verb, call = parse_call(KINDS, request, user, parsed_route, warnings)
        await objects.evaluate(partial(_require, objects, request, user, verb, parsed_route))
        if call is None or call.group != vmi_subresources.GROUP:
            return not_found.answer(KindTable(), parsed_route)
        request.body = await body()
        rest = RemoteRest(self._client, objects)
        return await rest.answer(lambda: answer_kubevirt(rest, self._nodes, call))


async def _require(
    objects: RemoteObjects, request: Request, user: User, verb: str, parsed_route: Route
) -> None:
    """Check the user's right, as the API server has done already.  Raises Forbidden."""
    objects.require(of_route(user, verb, parsed_route, request.query))
