"""Requests and websockets for nodes go to the API server's own proxy, as this process' user."""

import ssl
from contextlib import asynccontextmanager

import httpx2
import trustme
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import connect

from corral.client.kubeconfig import Kubeconfig
from corral.server.extension.proxied_nodes import ProxiedNodes
from corral.server.transport.listener import listening

AUTHORITY = trustme.CA()
PROXY = "/api/v1/nodes/n1/proxy"
CALLER = {
    "authorization": "Bearer of-the-caller",
    "x-remote-user": "caller",
    "impersonate-user": "admin",
    "user-agent": "virtctl",
}


async def shown(request):
    """What the API server sees of a request."""
    names = (*CALLER, "impersonate-group")
    seen = {name: request.headers[name] for name in names if name in request.headers}
    return JSONResponse({"path": request.url.path, "query": request.url.query, "headers": seen})


async def console(websocket):
    await websocket.accept()
    await websocket.send_text(f"{websocket.url.path} {websocket.headers['authorization']}")
    await websocket.close()


API_SERVER = Starlette(
    routes=[
        Route(f"{PROXY}/pause/default/a/1", shown, methods=["PUT"]),
        WebSocketRoute(f"/tenant{PROXY}/console", console),
    ]
)


def serving(app):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    return listening(app, "127.0.0.1", 0, tls)


def trusting():
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    return tls


@asynccontextmanager
async def node(path="", **user):
    """The port of a server that passes all on to node n1 of an API server at some path."""
    async with serving(API_SERVER) as (host, port):
        authority = AUTHORITY.cert_pem.bytes().decode()
        config = Kubeconfig(server=f"https://{host}:{port}{path}", authority=authority, **user)
        nodes = ProxiedNodes(config)
        assert nodes("n1") is nodes("n1")
        async with serving(nodes("n1")) as (_, front):
            yield front
        await nodes.aclose()


async def test_a_request_goes_through_nodes_proxy_with_the_processs_own_credentials():
    async with node(token="own") as port, httpx2.AsyncClient(verify=trusting()) as client:
        url = f"https://127.0.0.1:{port}/pause/default/a/1?dryRun=All"
        answer = await client.put(url, headers=CALLER)
    assert answer.json() == {
        "path": f"{PROXY}/pause/default/a/1",
        "query": "dryRun=All",
        "headers": {"authorization": "Bearer own", "user-agent": "virtctl"},
    }


async def test_a_websocket_goes_there_too_below_the_servers_own_path():
    async with (
        node("/tenant/", token="own") as port,
        connect(f"wss://127.0.0.1:{port}/console", ssl=trusting(), proxy=None) as connection,
    ):
        assert await connection.recv() == f"/tenant{PROXY}/console Bearer own"


async def test_a_node_that_is_not_there_is_the_api_servers_answer():
    async with node(token="own") as port, httpx2.AsyncClient(verify=trusting()) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/none")).status_code == 404
