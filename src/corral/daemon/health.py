"""Health endpoints of a process without an API: /healthz, /livez, /readyz and /metrics."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from corral.metrics import Registry


def health_app(metrics: Registry, *, fault: Callable[[], str]) -> Starlette:
    """Return the app; ``fault`` says why the process is not ready, or nothing."""

    async def alive(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_request: Request) -> Response:
        if reason := fault():
            return PlainTextResponse(f"not ready: {reason}", status_code=503)
        return PlainTextResponse("ok")

    async def scraped(request: Request) -> Response:
        body, media_type = await metrics.text(request.headers.get("accept", ""))
        return Response(body, media_type=media_type)

    return Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/livez", alive),
            Route("/readyz", ready),
            Route("/metrics", scraped),
        ]
    )
