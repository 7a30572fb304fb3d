"""Fetching: what servers and networks do to a download, and what becomes of it."""

import hashlib
import socket
import threading
from ipaddress import ip_network

import pytest

from corral.node.host.destinations import ANYWHERE, FOR_TENANTS, Destinations
from corral.node.images.authorization import basic
from corral.node.storage.population import http_download
from corral.node.storage.population.error import PopulationError
from corral.node.storage.population.partial_content import PartialContent

MOST = 1 << 30


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(http_download, "_PAUSE_SECONDS", 0.0)


def fetch(
    server, work, *, checksum="", max_bytes=MOST, stop=None, progress=lambda *_: None, **request
):
    part = PartialContent(work, checksum=checksum, max_bytes=max_bytes)
    request = {"url": server.url, "destinations": ANYWHERE} | request
    request = http_download.Request(**request)
    http_download.fetch(request, part, progress, stop or http_download.Stop())
    return part


def test_a_file_comes_whole_and_zeros_stay_holes(server, work, content):
    part = fetch(server, work)
    assert part.path.read_bytes() == content
    assert part.record.complete
    assert part.path.stat().st_blocks * 512 < len(content)
    assert part.path.stat().st_mode & 0o077 == 0


def test_progress_is_reported(server, work, content):
    heard = []
    fetch(server, work, progress=lambda *progress: heard.append(progress))
    assert heard[0] == (0, len(content))
    assert heard[-1] == (len(content), len(content))


def test_a_chunked_file_comes_whole(server, work, content):
    server.chunked = True
    assert fetch(server, work).path.read_bytes() == content


def test_a_download_resumes_where_the_connection_broke(server, work, content):
    server.cuts = [1_500_000, 700_000, 0]
    assert fetch(server, work).path.read_bytes() == content
    assert [server.header("range", index) for index in range(4)] == [
        None,
        "bytes=1500000-",
        "bytes=2200000-",
        "bytes=2200000-",
    ]
    assert server.sent == len(content)


def test_a_chunked_download_resumes_where_the_connection_broke(server, work, content):
    server.chunked, server.cuts = True, [2_000_000]
    assert fetch(server, work).path.read_bytes() == content


def test_a_later_attempt_resumes_where_the_first_ended(server, work, content):
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError, match="Unable to connect to http data source"):
        fetch(server, work)
    server.cuts, server.sent = [], 0
    assert fetch(server, work).path.read_bytes() == content
    assert server.sent == len(content) - 1_500_000


def test_a_download_starts_over_after_a_boot_of_the_host(server, work, content, monkeypatch):
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work)
    monkeypatch.setattr("corral.node.storage.population.partial_content._boot", lambda: "another")
    server.cuts, server.sent = [], 0
    assert fetch(server, work).path.read_bytes() == content
    assert server.sent == len(content)


def test_a_server_without_ranges_is_read_from_the_start(server, work, content):
    server.ranges, server.cuts = False, [1_500_000]
    assert fetch(server, work).path.read_bytes() == content


def test_a_file_that_changed_meanwhile_is_not_mixed_with_the_old_one(server, work, content):
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work)
    server.content, server.etag, server.cuts = content[::-1], '"two"', []
    assert fetch(server, work).path.read_bytes() == content[::-1]


def test_another_version_is_read_from_the_start(server, work, content):
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work)
    server.content, server.etag, server.heeds, server.cuts = content[::-1], '"two"', False, []
    assert fetch(server, work).path.read_bytes() == content[::-1]


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_a_file_without_a_name_for_its_version_begins_again(server, work, content, etag):
    server.etag, server.cuts = etag, [1_500_000]
    assert fetch(server, work).path.read_bytes() == content
    assert server.header("range") is None


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 7-9/10\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 206 P\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
def test_a_wrong_range_is_refused(server, work, content, head):
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work)
    server.cuts, server.heads = [], [head]
    assert fetch(server, work).path.read_bytes() == content


@pytest.mark.parametrize(("last", "length"), [(2, 3), (-1, 3)], ids=["not all", "not as long"])
def test_a_range_that_ends_early_is_refused(server, work, content, last, length):
    """The end of the file would be missing, unnoticed."""
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work)
    start = int(server.header("range").removeprefix("bytes=").removesuffix("-"))
    last = start + last if last >= 0 else len(content) + last
    head = f"HTTP/1.1 206 P\r\nContent-Range: bytes {start}-{last}/{len(content)}\r\n"
    server.cuts, server.heads = [], [f"{head}Content-Length: {length}\r\n\r\nabc".encode()]
    assert fetch(server, work).path.read_bytes() == content


@pytest.mark.parametrize("kind", ["md5", "sha1", "sha256", "sha512"])
def test_a_checksum_that_fits(server, work, content, kind):
    checksum = f"{kind}:{hashlib.new(kind, content).hexdigest().upper()}"
    server.cuts = [1_500_000]
    assert fetch(server, work, checksum=checksum).record.complete


def test_a_checksum_covers_the_parts_of_earlier_attempts(server, work, content):
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    server.cuts = [1_500_000] + [0] * 20
    with pytest.raises(PopulationError):
        fetch(server, work, checksum=checksum)
    server.cuts = []
    assert fetch(server, work, checksum=checksum).path.read_bytes() == content


def test_content_with_another_checksum_does_not_stay(server, work):
    with pytest.raises(PopulationError, match="has the sha256 checksum"):
        fetch(server, work, checksum="sha256:" + "0a" * 32)
    assert list(work.iterdir()) == []


def test_a_file_that_is_too_long_is_not_begun(server, work, content):
    with pytest.raises(PopulationError, match="more than 1048576 bytes"):
        fetch(server, work, max_bytes=1 << 20)
    assert not (work / "content").exists()


def test_a_file_without_end_is_ended(server, work):
    server.chunked, server.content = True, bytes(64 << 20)
    with pytest.raises(PopulationError, match="more than 2097152 bytes"):
        fetch(server, work, max_bytes=2 << 20)
    assert (work / "content").stat().st_size <= 2 << 20


def test_a_server_that_announces_more_than_it_has_is_given_up(server, work, content):
    server.length = len(content) + 1000
    with pytest.raises(PopulationError, match="Unable to connect to http data source"):
        fetch(server, work)
    assert not PartialContent(work, max_bytes=MOST).record.complete


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "got 404. Status: 404 Not Found"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "got 401"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n",
            "compresses the file",
        ),
        (b"HTTP/1.1 302 F\r\nLocation: file:///etc/shadow\r\n\r\n", "redirects to no address"),
        (b"HTTP/1.1 302 F\r\nLocation: http://a:b/\r\n\r\n", "redirects to no address"),
        (b"HTTP/1.1 302 F\r\nContent-Length: 0\r\n\r\n", "redirects without end"),
    ],
)
def test_an_answer_that_is_no_file(server, work, head, words):
    server.heads = [head] * 12
    with pytest.raises(PopulationError, match=words):
        fetch(server, work)


@pytest.mark.parametrize("head", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 503 Later\r\n\r\n"])
def test_an_answer_that_may_be_better_the_next_time(server, work, content, head):
    server.heads = [head] * 2
    assert fetch(server, work).path.read_bytes() == content


def test_a_server_that_is_not_there(server, work):
    with socket.socket() as taken:  # so that nobody else answers there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        message = r"Unable to connect to http data source: 127\.0\.0\.1"
        with pytest.raises(PopulationError, match=message):
            fetch(server, work, url=url)


def test_a_redirect_is_followed_and_gets_no_credentials(server, work, content):
    other = server.url.replace("127.0.0.1", "localhost")
    server.heads = [f"HTTP/1.1 302 F\r\nLocation: {other}\r\n\r\n".encode()]
    headers = [("Authorization", basic("me", "secret")), ("X-Key", "k")]
    assert fetch(server, work, headers=headers).path.read_bytes() == content
    assert server.header("authorization", 0) == "Basic bWU6c2VjcmV0"
    assert server.header("x-key", 0) == "k"
    assert server.header("authorization", 1) is None
    assert server.header("x-key", 1) is None


def test_a_proxy_of_the_environment_is_ignored(server, work, content, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert fetch(server, work).path.read_bytes() == content


def test_a_silent_server_can_be_left(server, work):
    server.heads = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"]
    stop = http_download.Stop()

    def leave(*_):
        threading.Timer(0, stop).start()

    server.length = 1 << 30
    with pytest.raises(PopulationError, match="cancelled"):
        fetch(server, work, stop=stop, progress=leave)


def test_a_full_disk_raises_its_oserror(server, work, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("corral.node.storage.population.partial_content.write_sparse", full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch(server, work)


def test_without_tls_no_authorities_are_read(server, work, content, monkeypatch):
    monkeypatch.setattr("ssl.create_default_context", lambda: pytest.fail("reads them: 30 ms"))
    assert fetch(server, work).path.read_bytes() == content


def test_a_cert_config_map_without_pem_is_refused(server, work):
    with pytest.raises(PopulationError, match="certConfigMap has no valid PEM"):
        fetch(server, work, authorities="-----BEGIN CERTIFICATE-----\nnonsense\n")


ONE_ONLY = Destinations(allowed=(ip_network("127.0.0.1/32"),))


@pytest.mark.parametrize("port", ["open", "closed"])
def test_loopback_is_refused_alike_for_open_and_closed_ports(server, work, port):
    number = server.socket.getsockname()[1] if port == "open" else 1
    with pytest.raises(PopulationError) as caught:
        fetch(server, work, url=f"http://localhost:{number}/disk", destinations=FOR_TENANTS)
    assert str(caught.value) == (
        "Unable to connect to http data source: localhost is not connected to: its address is "
        "loopback, which only an administrator opens (corral up --allow-destination)"
    )
    assert server.requests == []


def test_the_destination_of_a_redirect_is_checked(server, work):
    server.heads = [
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\n\r\n"
    ]
    with pytest.raises(PopulationError, match=r"169\.254\.169\.254 is not connected to"):
        fetch(server, work, destinations=ONE_ONLY)
    assert len(server.requests) == 1


def test_a_file_comes_from_where_the_administrator_allows(server, work, content):
    assert fetch(server, work, destinations=ONE_ONLY).path.read_bytes() == content


def test_requests_carry_the_host_name_of_the_url(server, work, content):
    port = server.socket.getsockname()[1]
    fetch(server, work, url=f"http://localhost:{port}/disk")
    assert server.header("host") == f"localhost:{port}"
