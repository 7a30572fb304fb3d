"""Client of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io.

Errors have Kubernetes' messages. Servers of these APIs are not trusted: a pod with an invalid value
counts as unmeasured.
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
from corral.cluster.autoscaler.targets import TargetNotFound, kind_of_reference

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
"""Timeout of a request."""
MAX_CONCURRENT = 32
"""Maximum of concurrent requests to one API of custom or external metrics."""
QUEUE_SECONDS = 3.0
"""Maximum wait for a slot among them: an API that hangs must not hold up the rest."""
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_CUSTOM_WINDOW = timedelta(minutes=1)
"""Averaging window of a custom metric that names none."""
_MAX_VALUE = 2**63 - 1
_FAILED = "unable to fetch metrics from {} metrics API"
_GROUP_NOT_FOUND = "404 page not found"
"""Message of a 404 for an unknown API group."""

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


class MetricsClient:
    """Reads metrics. Every method raises MetricError."""

    def __init__(self, client: Client, kinds: KindTable) -> None:
        self._client = client
        self._kinds = kinds
        self._slots = {api: asyncio.Semaphore(MAX_CONCURRENT) for api in ("custom", "external")}

    async def of_pods(
        self, namespace: str, selector: str, resource: str, container: str = ""
    ) -> dict[str, Sample]:
        """Return the usage of a resource by pod, or by one container of each pod."""
        listed = await _request(
            "resource", self._client.list(PodMetrics, namespace, labels=selector)
        )
        if not listed.items:
            raise Unmeasured("no metrics returned from resource metrics API")
        return _valid({each.key.name: _of_pod(each, resource, container) for each in listed.items})

    async def of_custom(
        self, namespace: str, selector: str, metric: MetricIdentifier
    ) -> dict[str, Sample]:
        """Return a custom metric by pod."""
        found = await self._custom(
            f"/namespaces/{_part(namespace)}/pods/*/{_part(metric.name)}",
            labelSelector=selector,
            metricLabelSelector=_selector(metric),
        )
        return _valid({each.described_object.name: _of_custom(each) for each in found.items})

    async def of_object(
        self, namespace: str, reference: CrossVersionObjectReference, metric: MetricIdentifier
    ) -> int:
        """Return a custom metric of one object, in thousandths."""
        try:
            kind = kind_of_reference(self._kinds, reference)
        except TargetNotFound as error:
            raise MetricError(f"unable to fetch metrics from custom metrics API: {error}") from None
        # Only objects of the autoscaler's namespace: names are quoted, so no path escapes it.
        path = f"/namespaces/{_part(namespace)}"
        if (kind.group, kind.name) == ("", "Namespace"):
            path += "/metrics"
        else:
            path += f"/{kind.resource}/{_part(reference.name)}"
        path += f"/{_part(metric.name)}"
        found = await self._custom(path, metricLabelSelector=_selector(metric))
        return _thousandths(found.items[0].value)

    async def of_external(self, namespace: str, metric: MetricIdentifier) -> int:
        """Return the sum of an external metric's values, in thousandths."""
        path = f"{EXTERNAL}/namespaces/{_part(namespace)}/{_part(metric.name)}"
        found = await self._values("external", path, labelSelector=_selector(metric))
        return min(sum(_thousandths(each.value) for each in found.items), _MAX_VALUE)

    async def _custom(self, path: str, **query: str) -> _Values:
        return await self._values("custom", CUSTOM + path, **query)

    async def _values(self, api: str, path: str, **query: str) -> _Values:
        query_string = urlencode({name: value for name, value in query.items() if value})
        async with self._slot(api):
            body = await _request(api, self._client.request("GET", path, query=query_string))
        try:
            found: _Values = decoder(_Values).decode(body)
        except msgspec.DecodeError as error:
            raise MetricError(f"{_FAILED.format(api)}: {error}") from None
        if not found.items:
            raise MetricError(f"no metrics returned from {api} metrics API")
        return found

    @asynccontextmanager
    async def _slot(self, api: str) -> AsyncIterator[None]:
        slots = self._slots[api]
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await slots.acquire()
        except TimeoutError:
            text = f"{MAX_CONCURRENT} other requests are waiting for it"
            raise MetricError(f"{_FAILED.format(api)}: {text}") from None
        try:
            yield
        finally:
            slots.release()


async def _request(api: str, response: Awaitable[T]) -> T:
    failed = _FAILED.format(api)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await response
    except ApiError as error:
        if str(error) == _GROUP_NOT_FOUND:
            group = f"{api}.metrics.k8s.io"
            raise MetricError(f"{failed}: no {api} metrics API ({group}) registered") from None
        raise MetricError(f"{failed}: {error}") from error
    except TimeoutError:
        raise MetricError(f"{failed}: no answer within {TIMEOUT_SECONDS:.0f} seconds") from None


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
        _log_invalid(metrics.key.name, error)
        return None


def _of_custom(item: _Value) -> Sample | None:
    try:
        window = (
            _CUSTOM_WINDOW
            if item.window_seconds is None
            else timedelta(seconds=item.window_seconds)
        )
        return Sample(_thousandths(item.value), parse_rfc3339(item.timestamp), window)
    except (ValueError, OverflowError, MetricError) as error:
        _log_invalid(item.described_object.name, error)
        return None


def _log_invalid(pod: str, error: Exception) -> None:
    log.warning("ignored invalid metric", pod=pod, error=str(error))


def _valid(samples: Mapping[str, Sample | None]) -> dict[str, Sample]:
    return {name: sample for name, sample in samples.items() if sample is not None}


def _thousandths(value: object) -> int:
    """Return a quantity in thousandths. Raises MetricError unless it is plausible."""
    try:
        found = quantity.parse(str(value)).rounded_up(-3)
    except ValueError as error:
        raise MetricError(f"the value of the metric is no quantity: {error}") from None
    if not 0 <= found <= _MAX_VALUE:
        raise MetricError(f"the value of the metric is out of range: {value}")
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
