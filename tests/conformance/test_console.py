"""The serial console as virtctl opens it, and the log as kubectl asks for it."""

import contextlib
import ssl
from collections.abc import Iterator

import pytest
from tests.conformance.api import PATIENCE, refused, until
from tests.conformance.manifests import core, machine, machines
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

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


@contextlib.contextmanager
def opened(user, path: str, **form) -> Iterator[ClientConnection]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": user.one.headers["Authorization"]} | form.pop("headers", {})
    with connect(
        f"wss://127.0.0.1:{user.one.port}{path}",
        ssl=context, additional_headers=headers, subprotocols=[PROTOCOL], proxy=None,
        compression=None, open_timeout=PATIENCE, **form,
    ) as console:  # fmt: skip
        yield console


def not_opened(user, path: str, **headers: str) -> tuple[int, bytes]:
    """The answer to a handshake that is refused.

    It is read by hand: websockets' client with threads may miss one with which a connection ends.
    """
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    with contextlib.closing(user.one.connect()) as connection:
        connection.request("GET", path, headers={**user.one.headers, **handshake, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()


def read_until(console: ClientConnection, text: bytes) -> bytes:
    said = b""
    while text not in said:
        piece = console.recv(timeout=PATIENCE)
        assert isinstance(piece, bytes), "a console sends binary frames only"
        said += piece
    return said


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
def test_the_console_speaks_kubevirts_protocol(user, namespace, running, version):
    with opened(user, console_path(namespace, running, version)) as console:
        assert console.subprotocol == PROTOCOL
        read_until(console, b"login: ")
        console.send(b"root\r")
        read_until(console, b"root\r")


def test_a_second_client_takes_the_console_over(user, namespace, running):
    path = console_path(namespace, running)
    with opened(user, path) as first:
        read_until(first, b"login: ")
        with opened(user, path) as second:
            with pytest.raises(ConnectionClosed):
                read_until(first, b"never said")
            read_until(second, b"login: ")


def test_a_machine_that_is_not_there_has_no_console(user, namespace):
    assert not_opened(user, console_path(namespace, "nosuch"))[0] == 404


def test_a_machine_that_waits_has_no_console_yet(api, user, namespace):
    """400 makes virtctl try again."""
    document = machine("waiting", nodeSelector={"nosuch": "node"})
    api.create(machines(namespace), document)
    status, said = not_opened(user, console_path(namespace, "waiting"))
    assert status == 400
    assert b"VMI is not running" in said


def test_a_stranger_gets_no_console(user, namespace, running):
    path = console_path(namespace, running)
    assert not_opened(user, path, Authorization="Bearer bad")[0] == 401


def test_a_console_is_not_to_be_had_without_an_upgrade(api, namespace, running):
    answer = api.get(console_path(namespace, running))
    assert 400 <= answer.status_code < 500, answer.text


def test_the_log_of_a_machine(api, namespace, running):
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
