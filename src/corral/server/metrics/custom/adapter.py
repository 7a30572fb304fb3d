"""Handlers of custom and external metrics.

/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/RESOURCE/NAME/METRIC     NAME may be *
/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/metrics/METRIC           of the namespace
/apis/custom.metrics.k8s.io/VERSION/RESOURCE/NAME/METRIC                   without namespaces
/apis/external.metrics.k8s.io/VERSION/namespaces/NS/METRIC
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from corral.api.encoding import encode
from corral.api.errors import (
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotFound,
)
from corral.api.kind import GroupVersion, Kind, at
from corral.api.kinds.table import KindTable
from corral.api.object import Document, Key
from corral.api.request import Request, Response
from corral.api.selectors import LabelSelector, parse_labels
from corral.api.subresources import Subresource
from corral.server.metrics.custom import metric_rules, promql, values
from corral.server.metrics.custom.metric_rules import NAMESPACES, Rule, Rules
from corral.server.metrics.custom.prometheus import Prometheus, Series
from corral.server.metrics.custom.values import CUSTOM, EXTERNAL, KINDS, VERSIONS, MetricRequest
from corral.server.request import query
from corral.server.request.call import json_response, storage
from corral.server.request.route import Route
from corral.store import Record, Store

if TYPE_CHECKING:
    from corral.client.https import WebServer

ALL = "*"
OF_NAMESPACE = "metrics"
"""The segment in place of a resource for metrics of the namespace itself."""
INSTANCE = "kubevirt.io/domain"
"""The annotation of a pod with the name of its VMI."""


class Adapter:
    """The adapter of one Prometheus, by rules."""

    def __init__(self, server: "WebServer", rules: Rules) -> None:
        self._server = server
        self._prometheus = Prometheus(server)
        self._rules = rules

    @classmethod
    def load(cls, url: str, file: Path | None) -> Self:
        """Return the adapter of a Prometheus, with the rules of a file.  Raises RulesError."""
        from corral.client.https import WebServer  # noqa: PLC0415 - most managers ask no Prometheus

        server = WebServer(url, description="Prometheus")
        return cls(server, metric_rules.load(file) if file is not None else Rules())

    async def aclose(self) -> None:
        """Close the connections to Prometheus."""
        await self._server.aclose()

    # -- discovery

    @staticmethod
    def groups() -> Iterator[GroupVersion]:
        for group, versions in VERSIONS.items():
            for version in versions:
                yield GroupVersion(group, version)

    def resources(self, kinds: KindTable) -> Iterator[Subresource]:
        """Yield the resources of discovery: the metrics that have rules."""
        namespaced = {kind.resource: kind.namespaced for kind in kinds}
        for group, version in self.groups():
            response_kind = (group, version, KINDS[group])
            for resource, metric in self._rules.custom if group == CUSTOM else ():
                yield Subresource(
                    group=group,
                    version=version,
                    plural=resource,
                    name=metric,
                    response_kind=response_kind,
                    namespaced=namespaced.get(resource, True),
                )
            for metric in self._rules.external if group == EXTERNAL else ():
                yield Subresource(
                    group=group,
                    version=version,
                    plural=metric,
                    name="",
                    response_kind=response_kind,
                )

    # -- answers

    @staticmethod
    def serves(route: Route) -> bool:
        """Return whether a path is one of metrics."""
        return route.version in VERSIONS.get(route.group, ())

    async def answer(
        self, store: Store, kinds: KindTable, request: Request, route: Route
    ) -> Response:
        """Serve a request.  Raises ApiError, such as Unavailable if Prometheus is."""
        if request.method not in ("GET", "HEAD") or route.watch:
            raise MethodNotAllowed("metrics are read-only")
        parameters = query.parse(request.query)
        if route.group == EXTERNAL:
            items = await self._external(route, parameters)
        else:
            items = await self._custom(store, kinds, route, parameters)
        return json_response(encode(values.value_list(route.group, route.version, items)))

    async def _external(self, route: Route, parameters: Mapping[str, str]) -> list[Document]:
        metric, namespace = route.plural, route.namespace
        rule = self._rules.external_rule(metric)
        if rule is None or not namespace or route.name:
            raise NotFound(f"the server could not find the metric {metric} for provided labels")
        conditions = promql.matchers(parse_labels(parameters.get("labelSelector", "")))
        series = await self._prometheus.query(
            rule.with_matchers(_within(rule, namespace) + conditions)
        )
        if not series:
            raise NotFound(f"the server could not find the metric {metric} for provided labels")
        return [values.external_value(metric, rule, one) for one in series]

    async def _custom(
        self, store: Store, kinds: KindTable, route: Route, parameters: Mapping[str, str]
    ) -> list[Document]:
        of_namespace = route.plural == OF_NAMESPACE and bool(route.namespace)
        resource = NAMESPACES if of_namespace else route.plural
        name = route.namespace if of_namespace else route.name
        metric = route.name if of_namespace else route.subresource
        if of_namespace and name == ALL:
            raise BadRequest(
                f'a metric of a namespace needs the name of one namespace, not "{ALL}"'
            )
        kind = next((each for each in kinds if each.resource == resource), None)
        missing = f"the server could not find the metric {metric} for {resource}"
        rule = self._rules.custom_rule(kind, metric) if kind is not None else None
        fits = kind is not None and (of_namespace or kind.namespaced == bool(route.namespace))
        if kind is None or rule is None or not fits:
            raise NotFound(missing if name == ALL else f"{missing} {name}")
        labels = parse_labels(parameters.get("labelSelector", ""))
        selector = parse_labels(parameters.get("metricLabelSelector", ""))
        requested = MetricRequest(route.version, kind, metric, selector, rule)
        namespace = "" if of_namespace else route.namespace
        objects = _objects(store, kind, namespace, name, labels)
        keys_by_name: dict[str, list[Key]] = defaultdict(list)
        for record in objects:
            keys_by_name[_name_in_prometheus(record, rule)].append(record.key)
        series = await self._values(requested, route.namespace, keys_by_name)
        if not series:
            raise NotFound(f"{missing} {f'* with selector {labels}' if name == ALL else name}")
        return [values.custom_value(requested, key, one) for key, one in series.items()]

    async def _values(
        self,
        requested: MetricRequest,
        namespace: str,
        keys_by_name: Mapping[str, Sequence[Key]],
    ) -> dict[Key, Series]:
        """Return the series of the requested objects.

        ``keys_by_name``: the objects by their names in Prometheus.  A VMI that restarts may have
        several pods for a while: each gets its value, and clients see which are being deleted.
        """
        if not keys_by_name:
            return {}
        rule = requested.rule
        conditions = _within(rule, namespace) + promql.matchers(requested.selector)
        if rule.label:
            conditions.append(promql.one_of(rule.label, keys_by_name))
        series: dict[Key, Series] = {}
        for one in await self._prometheus.query(rule.with_matchers(conditions)):
            name = one.labels.get(rule.label, "") if rule.label else next(iter(keys_by_name))
            for key in keys_by_name.get(name, ()):
                if key in series:
                    raise InternalError(
                        f"the query of the metric {requested.metric} answers several series of "
                        f"{key}: add them up, as in sum by ({rule.label}) (…)"
                    )
                series[key] = one
        return series


def _within(rule: Rule, namespace: str) -> list[str]:
    if not rule.namespace_label or not namespace:
        return []
    return [promql.equals(rule.namespace_label, namespace)]


def _objects(
    store: Store, kind: Kind, namespace: str, name: str, labels: LabelSelector
) -> list[Record]:
    """Return the requested objects: one by name, or all that match the selector."""
    if name == ALL:
        records = store.objects(storage(kind), namespace)
        return [each for each in records if labels.matches(each.labels)]
    record = store.get(storage(kind), Key(namespace, name))
    return [record] if record is not None else []


def _name_in_prometheus(record: Record, rule: Rule) -> str:
    """Return the name of an object in the labels of series."""
    if not rule.is_vmi_label:
        return record.key.name
    return str(at(record.document(), "metadata", "annotations", INSTANCE) or record.key.name)
