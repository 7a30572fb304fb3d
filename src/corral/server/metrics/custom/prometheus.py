"""Instant queries of a Prometheus, by its HTTP API (``/api/v1/query``).

The server is not trusted: the size of its response is limited, and values that are no finite number
or too large for a quantity are left out.
"""

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from corral.api.encoding import decode_as
from corral.api.errors import InternalError, Unavailable

if TYPE_CHECKING:
    from corral.client.https import WebServer

TIMEOUT_SECONDS: Final = 8.0
"""Less than the timeout of an autoscaler."""
MAX_RESPONSE_BYTES: Final = 4 << 20
MAX_SERIES: Final = 10_000
MAX_VALUE: Final = 2**63 / 1000
"""Values are smaller: autoscalers compute with int64 thousandths."""
_MAX_ERROR_CHARACTERS = 300
_YEAR_10000 = 253_402_300_800


class Series(NamedTuple):
    """The sample of a series; ``timestamp`` is in seconds since 1970."""

    labels: dict[str, str]
    value: float
    timestamp: float


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Response(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""


class Prometheus:
    """A client of one Prometheus, or of a server with the same API."""

    def __init__(self, server: "WebServer") -> None:
        self._server = server

    async def query(self, query: str) -> list[Series]:
        """Return the series of a query.  Raises Unavailable, InternalError for an invalid query."""
        form = urlencode({"query": query, "timeout": f"{TIMEOUT_SECONDS:g}s"}).encode()
        status, body = await self._server.post(
            "/api/v1/query",
            form,
            content_type="application/x-www-form-urlencoded",
            seconds=TIMEOUT_SECONDS,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        try:
            response = decode_as(body, _Response)
            if response.status == "success" and response.data is not None:
                return _series(response.data)
        except msgspec.DecodeError as error:
            raise self._unavailable(f"HTTP {status} with an invalid body: {error}") from None
        message = "".join(each for each in response.error if each.isprintable())[
            :_MAX_ERROR_CHARACTERS
        ]
        if status in (400, 422):
            raise InternalError(
                f"{self._server} refuses the query {query[:_MAX_ERROR_CHARACTERS]}: {message}"
            )
        raise self._unavailable(f"HTTP {status}: {message}" if message else f"HTTP {status}")

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"{self._server} does not answer as one: {why}")


def _series(data: _Data) -> list[Series]:
    """Decode the result of a query.  Raises msgspec.DecodeError."""
    if data.result_type == "scalar":
        samples = [_Sample({}, decode_as(data.result, tuple[float, str]))]
    elif data.result_type == "vector":
        samples = decode_as(data.result, list[_Sample])
    else:
        raise msgspec.ValidationError(f"a result of the type {data.result_type[:50]!r}")
    if len(samples) > MAX_SERIES:
        raise msgspec.ValidationError(f"{len(samples)} series, of which {MAX_SERIES} are read")
    series = []
    for one in samples:
        timestamp, text = one.value
        value = _number(text)
        if value is not None and 0 <= timestamp < _YEAR_10000:
            series.append(Series(one.metric, value, timestamp))
    return series


def _number(text: str) -> float | None:
    """Parse a value; None for NaN, infinite and too large ones."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < MAX_VALUE else None
