"""Asks a Prometheus what a query is at now (its HTTP API, ``/api/v1/query``).

What answers may be anybody: how much it says is bounded, and a value that is no number at all, or
none that a quantity can hold, is one that is not known.
"""

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from corral.api.encoding import decode_as
from corral.api.errors import InternalError, Unavailable

if TYPE_CHECKING:
    from corral.client.https import WebServer

ANSWER_SECONDS: Final = 8.0
"""Less than an autoscaler waits for an answer."""
LARGEST_ANSWER_BYTES: Final = 4 << 20
MOST_SERIES: Final = 10_000
LARGEST: Final = 2**63 / 1000
"""No value is larger: autoscalers reckon in thousandths."""
_LONGEST_ERROR = 300
_YEAR_10000 = 253_402_300_800


class Series(NamedTuple):
    """One series of an answer; ``moment`` is in seconds since 1970."""

    labels: dict[str, str]
    value: float
    moment: float


class _Found(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""


class Prometheus:
    """One Prometheus, or what speaks as it does."""

    def __init__(self, site: "WebServer") -> None:
        self._site = site

    async def ask(self, query: str) -> list[Series]:
        """The series that a query answers.  Raises Unavailable, InternalError for a bad query."""
        form = urlencode({"query": query, "timeout": f"{ANSWER_SECONDS:g}s"}).encode()
        status, body = await self._site.post(
            "/api/v1/query",
            form,
            content_type="application/x-www-form-urlencoded",
            seconds=ANSWER_SECONDS,
            max_bytes=LARGEST_ANSWER_BYTES,
        )
        try:
            answer = decode_as(body, _Answer)
            if answer.status == "success" and answer.data is not None:
                return _series(answer.data)
        except msgspec.DecodeError as error:
            raise self._unavailable(
                f"HTTP {status}, and nothing that can be read: {error}"
            ) from None
        told = "".join(each for each in answer.error if each.isprintable())[:_LONGEST_ERROR]
        if status in (400, 422):
            raise InternalError(f"{self._site} refuses the query {query[:_LONGEST_ERROR]}: {told}")
        raise self._unavailable(f"HTTP {status}: {told}" if told else f"HTTP {status}")

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"{self._site} does not answer as one: {why}")


def _series(data: _Data) -> list[Series]:
    """Raises msgspec.DecodeError."""
    if data.result_type == "scalar":
        found = [_Found({}, decode_as(data.result, tuple[float, str]))]
    elif data.result_type == "vector":
        found = decode_as(data.result, list[_Found])
    else:
        raise msgspec.ValidationError(f"a result of the type {data.result_type[:50]!r}")
    if len(found) > MOST_SERIES:
        raise msgspec.ValidationError(f"{len(found)} series, of which {MOST_SERIES} are read")
    series = []
    for one in found:
        moment, text = one.value
        value = _number(text)
        if value is not None and 0 <= moment < _YEAR_10000:
            series.append(Series(one.metric, value, moment))
    return series


def _number(text: str) -> float | None:
    """What a value is worth; None where that is no amount of anything."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < LARGEST else None
