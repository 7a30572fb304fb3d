"""HTTP probes: what is followed, what is not, and what is said of answers that are none."""

import pytest
from lightkube.models.core_v1 import HTTPGetAction, HTTPHeader
from tests.unit.node.probes.test_prober import Server, connected

from corral.node.network.guest_ports import Ports
from corral.node.probes.http_probe import (
    MAX_HEADER_BYTES,
    MAX_INFORMATIONAL,
    MAX_REDIRECTS,
    HttpError,
    get,
    url_of,
)

HOST = "10.244.0.7"
URL = f"http://{HOST}:80/"


class Web:
    """Answers each request by its target; ``targets``: address, port and target of each."""

    def __init__(self, **answers):
        self.answers = answers
        self.targets = []
        self.requests = []

    async def connect(self, address, port):
        def answer(request):
            target = request.split(b" ")[1].decode()
            self.targets.append((address, port, target))
            name = target.strip("/").partition("?")[0] or "root"
            return self.answers[name]

        return await connected(Server(self.requests, answer))


def leads_to(location, code=302):
    return f"HTTP/1.1 {code} Found\r\nlocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


OK = b"HTTP/1.1 200 OK\r\n\r\nhello"
AHEAD = b"HTTP/1.1 103 Early Hints\r\nLocation: /elsewhere\r\n\r\n"
ILL = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"


async def status_of(web, url=URL, **action):
    return await get(Ports(web), url, HTTPGetAction(port=80, **action))


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("end", "status"), [(OK, 200), (ILL, 503)])
async def test_a_redirect_on_the_same_host_is_followed(code, end, status):
    web = Web(root=leads_to("/login?next=%2F", code), login=end)
    assert await status_of(web) == status
    assert [target for *_, target in web.targets] == ["/", "/login?next=%2F"]


async def test_another_port_of_the_same_host_is_the_same_host():
    web = Web(root=leads_to(f"http://{HOST}:8080/there"), there=OK)
    assert await status_of(web) == 200
    assert web.targets[-1] == (HOST, 8080, "/there")
    assert b"Host: 10.244.0.7:8080\r\n" in web.requests[-1]


@pytest.mark.parametrize(("end", "status"), [(OK, 200), (ILL, 503), (leads_to("/", 101), 101)])
async def test_informational_responses_are_skipped(end, status):
    assert await status_of(Web(root=AHEAD * MAX_INFORMATIONAL + end)) == status


@pytest.mark.parametrize("location", ["http://192.0.2.1/", "//evil.example/x", "", "gopher:x"])
async def test_a_redirect_to_another_host_is_not_followed(location):
    web = Web(root=leads_to(location))
    assert await status_of(web) == 302
    assert len(web.targets) == 1


async def test_a_response_without_a_location_is_no_redirect():
    assert await status_of(Web(root=leads_to("/there", 304))) == 304


async def test_redirects_are_limited():
    web = Web(root=leads_to("/"))
    with pytest.raises(HttpError, match=f"stopped after {MAX_REDIRECTS} redirects"):
        await status_of(web)
    assert len(web.targets) == MAX_REDIRECTS


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", f'Get "{URL}": EOF'),
        (b"SSH-2.0-dropbear\r\n", 'malformed HTTP response "SSH-2.0-dropbear"'),
        (b"HTTP/1.1 2\xb2\xb2\r\n\r\n", "malformed HTTP response"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEADER_BYTES, "headers exceeded"),
        (leads_to(f"http://{HOST}:99999/"), "99999"),
        (leads_to("http://[/"), "failed to parse Location header"),
        (AHEAD * (MAX_INFORMATIONAL + 1) + OK, "too many 1xx informational responses"),
        (AHEAD, "EOF"),
    ],
)
async def test_an_invalid_response_is_reported(answer, why):
    with pytest.raises(HttpError) as raised:
        await status_of(Web(root=answer))
    assert why in str(raised.value)


async def test_a_request_target_is_one_line_without_blanks():
    web = Web(root=leads_to("/a b\u2028c"), **{"a%20b%E2%80%A8c": OK})
    assert await status_of(web) == 200
    assert all(request.split(b"\r\n")[0].count(b" ") == 2 for request in web.requests)


async def test_the_location_is_quoted_in_part():
    web = Web(root=leads_to("/" + "x" * 9999))
    web.answers["x" * 9999] = b""
    with pytest.raises(HttpError) as raised:
        await status_of(web)
    assert len(str(raised.value)) < 600


async def test_headers_of_the_probe_replace_those_of_the_kubelet():
    web = Web(root=OK)
    headers = [HTTPHeader("host", "shop.example"), HTTPHeader("user-agent", "me")]
    await status_of(web, httpHeaders=headers)
    lines = web.requests[0].split(b"\r\n")
    assert {b"host: shop.example", b"user-agent: me", b"Accept: */*"} <= set(lines)
    assert not any(line.startswith((b"Host:", b"User-Agent:")) for line in lines)


@pytest.mark.parametrize(
    ("action", "address", "url"),
    [
        ({}, "10.0.0.1", "http://10.0.0.1:80/"),
        ({"path": "up?x=1", "scheme": "HTTPS"}, "10.0.0.1", "https://10.0.0.1:80/up?x=1"),
        ({"path": "/up"}, "fd00::1", "http://[fd00::1]:80/up"),
    ],
)
def test_the_url_of_a_probe(action, address, url):
    assert url_of(HTTPGetAction(port=80, **action), address, 80) == url
