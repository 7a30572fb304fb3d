"""The fields of an audit event."""

from corral.api.request import Request
from corral.server.audit.audit_event import MAX_URI_CHARACTERS, of_request


def test_a_long_uri_is_truncated():
    request = Request(method="GET", path="/api", query="a" * 50_000)
    event = of_request(request, None, "get", None, "Metadata")
    assert event["requestURI"].startswith("/api?aaa")
    assert len(event["requestURI"]) == MAX_URI_CHARACTERS
