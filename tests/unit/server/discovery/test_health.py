"""Health checks of the server, and the users that see the reasons."""

import pytest

from corral.api.errors import BadRequest
from corral.api.request import Request, User
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.server.discovery import health

BOB = User(name="bob", groups=("system:authenticated",))


class Disk:
    """A store of which nothing matters but what is wrong with it."""

    def __init__(self, fault=""):
        self.error_message = fault
        self.damaged = ()


def response_of(path, fault="", user=ADMINISTRATOR):
    path, _, query = path.partition("?")
    request = Request(method="GET", path=path, query=query)
    answer = health.answer(path, request, user, Disk(fault))
    return answer.status, answer.body.decode()


@pytest.mark.parametrize("root", health.ROOTS)
def test_a_healthy_server_responds_ok(root):
    for path in (f"/{root}", f"/{root}/ping", f"/{root}/store", f"/{root}?exclude=store"):
        assert response_of(path) == (200, "ok")
    assert response_of(f"/{root}/nosuch")[0] == 404
    assert response_of(f"/{root}?verbose") == (
        200,
        f"[+]ping ok\n[+]store ok\n{root} check passed\n",
    )


def test_a_server_that_cannot_write_is_alive_and_not_ready():
    failed = "[+]ping ok\n[-]store failed: no space left\nreadyz check failed\n"
    assert response_of("/readyz", "no space left") == (500, failed)
    assert response_of("/readyz/store", "no space left") == (
        500,
        "internal server error: no space left\n",
    )
    assert response_of("/readyz/ping", "no space left") == (200, "ok")
    assert response_of("/livez", "no space left") == (200, "ok")
    assert response_of("/livez/store", "no space left") == (200, "ok")


def test_a_failing_audit_log_keeps_the_server_ready():
    request, fault = Request(method="GET", path="/readyz"), "a.log cannot be written: full"
    alone = health.answer("/readyz/audit", request, ADMINISTRATOR, Disk(), audit_fault=fault)
    assert (alone.status, alone.body) == (500, f"internal server error: {fault}\n".encode())
    whole = health.answer("/readyz", request, ADMINISTRATOR, Disk(), audit_fault=fault)
    assert (whole.status, whole.body) == (200, b"ok")
    assert response_of("/readyz/audit") == (200, "ok")


def test_the_reason_is_for_administrators():
    assert "[-]store failed: reason withheld" in response_of("/readyz", "/var/x is full", BOB)[1]
    assert "/var/x" not in response_of("/readyz/store", "/var/x is full", BOB)[1]


def test_checks_can_be_excluded():
    assert response_of("/readyz?exclude=store", "full") == (200, "ok")
    report = response_of("/readyz?verbose&exclude=store&exclude=nosuch", "full")[1]
    assert report == (
        "[+]ping ok\n[+]store excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "nosuch"\n'
        "readyz check passed\n"
    )


def test_a_query_with_too_many_parameters_is_rejected():
    with pytest.raises(BadRequest, match="the query is not readable: Max number of fields"):
        response_of("/readyz?" + "&a" * 30_000)
