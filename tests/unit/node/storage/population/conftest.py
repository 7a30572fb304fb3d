"""A web server that does to a download what servers and networks do."""

import random
import re
import socket
import threading
from dataclasses import dataclass, field

import pytest

MiB = 1 << 20


@dataclass
class Server:
    """Serves one file to all clients, and records the requests.

    etag, ranges: the ETag of the file, and whether ranges are served.
    heeds: whether ranges are served only of the requested version (If-Range).
    cuts: after how many bytes each of the next connections is cut; then no more.
    heads: what each of the next requests is answered instead, whole.
    length: what it says that the length is; the true one unless said.
    chunked: send in chunks, and say no length at all.
    """

    content: bytes
    etag: str = '"one"'
    ranges: bool = True
    heeds: bool = True
    cuts: list[int] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    length: int | None = None
    chunked: bool = False
    requests: list[str] = field(default_factory=list)
    sent: int = 0

    def start(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/disk"
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        """End the thread first: the number of a closed socket is soon that of another server."""
        self.socket.shutdown(socket.SHUT_RDWR)  # which ends accept(); close() would not
        self.thread.join()
        self.socket.close()

    def header(self, name, index=-1):
        """A header of a request."""
        found = re.search(rf"(?im)^{name}: (.*?)\r?$", self.requests[index])
        return found and found[1]

    def _run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                try:
                    self._answer(connection)
                except OSError:
                    continue

    def _answer(self, connection):
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536) or b"\r\n\r\n"
        self.requests.append(request.decode("latin-1"))
        if self.heads:
            connection.sendall(self.heads.pop(0))
            return
        start = self._start()
        connection.sendall(self._head(start))
        self._send(connection, self.content[start:])

    def _start(self):
        range_ = self.header("range")
        same = not self.heeds or self.header("if-range") == self.etag
        if range_ and self.ranges and same:
            return int(re.fullmatch(r"bytes=(\d+)-", range_)[1])
        return 0

    def _head(self, start):
        whole = self.content
        lines = ["HTTP/1.1 206 Partial Content" if start else "HTTP/1.1 200 OK"]
        if start:
            lines.append(f"Content-Range: bytes {start}-{len(whole) - 1}/{len(whole)}")
        if self.etag:
            lines.append(f"ETag: {self.etag}")
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        else:
            length = len(whole) if self.length is None else self.length
            lines.append(f"Content-Length: {length - start}")
        return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode()

    def _send(self, connection, body):
        cut = self.cuts.pop(0) if self.cuts else len(body)
        for position in range(0, min(cut, len(body)), MiB):
            piece = body[position : min(position + MiB, cut)]
            if self.chunked:
                piece = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
            connection.sendall(piece)
            self.sent += len(piece)
        if self.chunked and cut >= len(body):
            connection.sendall(b"0\r\n\r\n")


@pytest.fixture
def content():
    """Five MiB: letters, zeros, letters, and a little more."""
    letters = random.Random(1).randbytes(2 * MiB)
    return letters + bytes(MiB) + letters[::-1] + letters[:512]


@pytest.fixture
def server(content):
    server = Server(content).start()
    yield server
    server.stop()


@pytest.fixture
def work(tmp_path):
    directory = tmp_path / "work"
    directory.mkdir()
    return directory
