"""Asks what was measured: of pods, of other objects, and of what is no object here at all.

The three APIs are metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io; the texts of
failures are Kubernetes'.  What answers may be anybody's, so a value counts only if it can be one: a
pod of which nonsense is told is a pod of which nothing is known.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
import structlog
from lightkube.models.autoscaling_v2 import CrossVersionObjectReference, MetricIdentifier

from corral.api import quantity
from corral.api.errors import ApiError, BadRequest
from corral.api.kinds.table import KindTable
from corral.api.kinds.usage import PodMetrics
from corral.api.object import Quantity, Struct
from corral.api.selectors import label_selector
from corral.api.time import parse_duration, parse_rfc3339
from corral.client.client import Client
from corral.client.decoding import decoder
from corral.cluster.autoscaler.replicas import MetricError, Sample, Unmeasured
from corral.cluster.autoscaler.targets import NoTarget, kind_of_reference

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""For how long an answer is waited for."""
AT_ONCE = 32
"""Questions that wait for the answers of one API of custom or external metrics."""
TURN_SECONDS = 3.0
"""For how long a question waits until fewer do: where an API hangs, the rest is not held up too."""
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_CUSTOM_WINDOW = timedelta(minutes=1)
"""Over what a custom metric is an average, where it does not say."""
_LARGEST = 2**63 - 1
_FAILED = "unable to fetch metrics from {} metrics API"
_NOBODY = "404 page not found"
"""What a server says of groups that it has never heard of."""

log = structlog.get_logger()


class _Described(Struct):
    name: str = ""


class _Value(Struct, kw_only=True):
    """One value of a custom or external metric."""

    described_object: _Described = msgspec.field(default_factory=_Described)
    timestamp: str = ""
    window_seconds: int | None = None
    value: Quantity


class _Values(Struct):
    items: list[_Value] = []


class Measured:
    """What is measured, as a client may read it.  Everything raises MetricError."""

    def __init__(self, client: Client, kinds: KindTable) -> None:
        self._client = client
        self._kinds = kinds
        self._turns = {api: asyncio.Semaphore(AT_ONCE) for api in ("custom", "external")}

    async def of_pods(
        self, namespace: str, selector: str, resource: str, container: str = ""
    ) -> dict[str, Sample]:
        """By pod, what each uses of a resource; with a container, what that container uses."""
        listed = await _asked("resource", self._client.list(PodMetrics, namespace, labels=selector))
        if not listed.items:
            raise Unmeasured("no metrics returned from resource metrics API")
        return _known({each.key.name: _of_pod(each, resource, container) for each in listed.items})

    async def of_custom(
        self, namespace: str, selector: str, metric: MetricIdentifier
    ) -> dict[str, Sample]:
        """By pod, what a custom metric is at."""
        found = await self._custom(
            f"/namespaces/{_part(namespace)}/pods/*/{_part(metric.name)}",
            labelSelector=selector,
            metricLabelSelector=_selector(metric),
        )
        return _known({each.described_object.name: _of_custom(each) for each in found.items})

    async def of_object(
        self, namespace: str, reference: CrossVersionObjectReference, metric: MetricIdentifier
    ) -> int:
        """What a custom metric of one object is at, in thousandths."""
        try:
            kind = kind_of_reference(self._kinds, reference)
        except NoTarget as error:
            raise MetricError(f"unable to fetch metrics from custom metrics API: {error}") from None
        # An object of another namespace is none that may be looked at, by whatever name.
        path = f"/namespaces/{_part(namespace)}"
        if (kind.group, kind.name) == ("", "Namespace"):
            path += "/metrics"
        else:
            path += f"/{kind.resource}/{_part(reference.name)}"
        path += f"/{_part(metric.name)}"
        found = await self._custom(path, metricLabelSelector=_selector(metric))
        return _thousandths(found.items[0].value)

    async def of_external(self, namespace: str, metric: MetricIdentifier) -> int:
        """What all that is told of an external metric adds up to, in thousandths."""
        path = f"{EXTERNAL}/namespaces/{_part(namespace)}/{_part(metric.name)}"
        found = await self._values("external", path, labelSelector=_selector(metric))
        return min(sum(_thousandths(each.value) for each in found.items), _LARGEST)

    async def _custom(self, path: str, **query: str) -> _Values:
        return await self._values("custom", CUSTOM + path, **query)

    async def _values(self, api: str, path: str, **query: str) -> _Values:
        given = urlencode({name: value for name, value in query.items() if value})
        async with self._turn(api):
            body = await _asked(api, self._client.request("GET", path, query=given))
        try:
            found: _Values = decoder(_Values).decode(body)
        except msgspec.DecodeError as error:
            raise MetricError(f"{_FAILED.format(api)}: {error}") from None
        if not found.items:
            raise MetricError(f"no metrics returned from {api} metrics API")
        return found

    @asynccontextmanager
    async def _turn(self, api: str) -> AsyncIterator[None]:
        turns = self._turns[api]
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await turns.acquire()
        except TimeoutError:
            text = f"{AT_ONCE} other questions wait for its answers"
            raise MetricError(f"{_FAILED.format(api)}: {text}") from None
        try:
            yield
        finally:
            turns.release()


async def _asked(api: str, answer: Awaitable[T]) -> T:
    failed = _FAILED.format(api)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await answer
    except ApiError as error:
        if str(error) == _NOBODY:
            group = f"{api}.metrics.k8s.io"
            raise MetricError(f"{failed}: no {api} metrics API ({group}) registered") from None
        raise MetricError(f"{failed}: {error}") from error
    except TimeoutError:
        raise MetricError(f"{failed}: no answer within {ANSWER_SECONDS:.0f} seconds") from None


def _of_pod(metrics: PodMetrics, resource: str, container: str) -> Sample | None:
    measured = [each for each in metrics.containers if container in ("", each.name)]
    if container and not measured:
        raise MetricError(
            "failed to get container metrics: "
            f"container {container} not present in metrics for pod {metrics.key}"
        )
    values = [each.usage.get(resource) for each in measured]
    if not values or None in values:
        return None
    try:
        window = timedelta(seconds=parse_duration(metrics.window))
        return Sample(sum(map(_thousandths, values)), parse_rfc3339(metrics.timestamp), window)
    except (ValueError, OverflowError, MetricError) as error:
        _refuse(metrics.key.name, error)
        return None


def _of_custom(told: _Value) -> Sample | None:
    try:
        window = (
            _CUSTOM_WINDOW
            if told.window_seconds is None
            else timedelta(seconds=told.window_seconds)
        )
        return Sample(_thousandths(told.value), parse_rfc3339(told.timestamp), window)
    except (ValueError, OverflowError, MetricError) as error:
        _refuse(told.described_object.name, error)
        return None


def _refuse(pod: str, error: Exception) -> None:
    log.warning("metric refused", pod=pod, error=str(error))


def _known(samples: Mapping[str, Sample | None]) -> dict[str, Sample]:
    return {name: sample for name, sample in samples.items() if sample is not None}


def _thousandths(value: object) -> int:
    """What a quantity is worth, where it can be the measure of something.  Raises MetricError."""
    try:
        found = quantity.parse(str(value)).rounded_up(-3)
    except ValueError as error:
        raise MetricError(f"the value of the metric cannot be read: {error}") from None
    if not 0 <= found <= _LARGEST:
        raise MetricError(f"the value of the metric cannot be true: {value}")
    return found


def _selector(metric: MetricIdentifier) -> str:
    if metric.selector is None:
        return ""
    try:
        return str(label_selector(msgspec.to_builtins(metric.selector)))
    except BadRequest as error:
        raise MetricError(str(error)) from None


def _part(text: str) -> str:
    return quote(text, safe="")
