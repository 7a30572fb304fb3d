"""Which answers are compressed; that they are is tested behind sockets."""

import pytest

from corral.api.request import Request, Response
from corral.server.response import compression


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=0", False),
        ("br", False),
        ("", False),
        ("gzip" + ", br" * 10_000, False),
    ],
)
def test_responses_are_compressed_if_accepted(header, expected):
    request = Request(method="GET", path="/api", headers={"accept-encoding": header})
    response = Response(body=bytes(compression.MIN_BYTES))
    assert compression.should_compress(request, response) is expected
