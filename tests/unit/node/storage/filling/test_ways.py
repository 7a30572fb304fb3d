"""How downloads run beside everything else that the manager does."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from corral.node.destinations import ANYWHERE
from corral.node.storage.filling import http
from corral.node.storage.filling.part import Part
from corral.node.storage.filling.ways import _fetched


async def test_a_silent_server_leaves_threads_to_who_needs_one_for_a_moment(work):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/disk"
        request = http.Request(url=url, destinations=ANYWHERE)
        fetching = asyncio.create_task(_fetched(request, Part(work, most=9), lambda _: None))
        connected, _ = await asyncio.get_running_loop().sock_accept(server)
        with connected:
            async with asyncio.timeout(60):
                assert await asyncio.to_thread(bool, "answered")
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
