"""The serial console as virtctl opens it, and the log as kubectl asks for it."""

import asyncio
import ssl

import pytest
from tests.conformance.api import PATIENCE, refused, until
from tests.conformance.manifests import core, machine, machines
from websockets import Subprotocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

pytestmark = pytest.mark.conformance

PROTOCOL = "plain.kubevirt.io"


def console_path(namespace: str, name: str, version: str = "v1") -> str:
    group = f"/apis/subresources.kubevirt.io/{version}"
    return f"{group}/namespaces/{namespace}/virtualmachineinstances/{name}/console"


@pytest.fixture
def running(api, namespace) -> str:
    """The name of a machine that runs."""
    api.create(machines(namespace), machine("one"))
    path = machines(namespace, "one")
    until("it runs", lambda: api.get_document(path)["status"]["phase"] == "Running")
    return "one"


def opened(user, path: str, **headers: str) -> connect:
    """A console that is open while a block lasts.

    websockets' client with threads will not do: one reads while another writes, which OpenSSL does
    not stand where tickets of TLS 1.3 come in just then, and the request is never sent.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return connect(
        f"wss://127.0.0.1:{user.one.port}{path}",
        ssl=context,
        additional_headers={"Authorization": user.one.headers["Authorization"]} | headers,
        subprotocols=[Subprotocol(PROTOCOL)],
        proxy=None,
        compression=None,
        open_timeout=PATIENCE,
    )


async def not_opened(user, path: str, **headers: str) -> tuple[int, bytes]:
    """The answer to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        async with opened(user, path, **headers):
            pass
    answer = refusal.value.response
    return answer.status_code, answer.body


async def read_until(console: ClientConnection, text: bytes) -> None:
    said = b""
    async with asyncio.timeout(PATIENCE):
        while text not in said:
            piece = await console.recv()
            assert isinstance(piece, bytes), "a console sends binary frames only"
            said += piece


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_the_console_speaks_kubevirts_protocol(user, namespace, running, version):
    async with opened(user, console_path(namespace, running, version)) as console:
        assert console.subprotocol == PROTOCOL
        await read_until(console, b"login: ")
        await console.send(b"root\r")
        await read_until(console, b"root\r")


async def test_a_second_client_displaces_the_first(user, namespace, running):
    path = console_path(namespace, running)
    async with opened(user, path) as first:
        await read_until(first, b"login: ")
        async with opened(user, path) as second:
            with pytest.raises(ConnectionClosed) as cut:
                await read_until(first, b"never said")
            assert cut.value.rcvd is None, "of a connection that is cut virtctl reports in words"
            await read_until(second, b"login: ")


async def test_a_missing_vmi_has_no_console(user, namespace):
    assert (await not_opened(user, console_path(namespace, "nosuch")))[0] == 404


async def test_a_pending_vmi_has_no_console(api, user, namespace):
    """400 makes virtctl try again."""
    document = machine("waiting", nodeSelector={"nosuch": "node"})
    api.create(machines(namespace), document)
    status, said = await not_opened(user, console_path(namespace, "waiting"))
    assert status == 400
    assert b"VMI is not running" in said


async def test_an_unauthenticated_client_gets_no_console(user, namespace, running):
    path = console_path(namespace, running)
    assert (await not_opened(user, path, Authorization="Bearer bad"))[0] == 401


def test_a_console_needs_an_upgrade(api, namespace, running):
    answer = api.get(console_path(namespace, running))
    assert 400 <= answer.status_code < 500, answer.text


def test_the_log_of_a_vmi(api, namespace, running):
    (pod,) = api.items(core("pods", namespace))
    path = core("pods", namespace, pod["metadata"]["name"], "log")
    compute = {"container": "compute"}
    answer = api.get(path, params=compute)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert api.get(path, params=compute | {"tailLines": 5}).status_code == 200
    refused(api.get(path, params=compute | {"tailLines": "some"}), 400, "BadRequest")
    since = compute | {"sinceSeconds": 60, "timestamps": "true"}
    assert api.get(path, params=since).status_code == 200
    refused(api.get(path, params=compute | {"sinceTime": "yesterday"}), 400, "BadRequest")
    refused(api.get(path, params={"container": "nosuch"}), 400, "BadRequest")
    message = refused(api.get(path), 400, "BadRequest")["message"]
    assert (
        "choose one of: [compute volumedisk] or one of the init containers: [guest-console-log]"
        in message
    )
    refused(api.get(core("pods", namespace, "nosuch", "log")), 404, "NotFound")
