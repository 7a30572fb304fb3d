"""The paths of one port: webhooks, the aggregated API, health and metrics."""

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from corral.server.extension.webhooks import PATHS


@dataclass(frozen=True, slots=True)
class ExtensionApp:
    """Passes each request to the app of its path; ``health`` has all that the others have not."""

    webhooks: ASGIApp
    api: ASGIApp
    health: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" or scope["path"].startswith(("/apis", "/openapi")):
            await self.api(scope, receive, send)
        elif scope["path"] in PATHS:
            await self.webhooks(scope, receive, send)
        else:
            await self.health(scope, receive, send)
