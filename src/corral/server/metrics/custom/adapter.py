"""Answers what autoscalers ask of metrics that are not Kubernetes' own.

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
from corral.server.metrics.custom.values import CUSTOM, EXTERNAL, KINDS, VERSIONS, Asked
from corral.server.request import query
from corral.server.request.call import json_response, storage
from corral.server.request.route import Route
from corral.store import Record, Store

if TYPE_CHECKING:
    from corral.client.https import WebServer

ALL = "*"
OF_NAMESPACE = "metrics"
"""What stands in the place of a resource where a metric is of the namespace itself."""
INSTANCE = "kubevirt.io/domain"
"""The annotation of a pod that names its instance."""


class Adapter:
    """A Prometheus, the rules for asking it, and the paths that are answered from it."""

    def __init__(self, site: "WebServer", rules: Rules) -> None:
        self._site = site
        self._prometheus = Prometheus(site)
        self._rules = rules

    @classmethod
    def load(cls, url: str, file: Path | None) -> Self:
        """The adapter for a Prometheus, with the rules of a file.  Raises RulesError."""
        from corral.client.https import WebServer  # noqa: PLC0415 - most managers ask no Prometheus

        site = WebServer(url, description="Prometheus")
        return cls(site, metric_rules.load(file) if file is not None else Rules())

    async def aclose(self) -> None:
        """Ask nothing more."""
        await self._site.aclose()

    # -- discovery

    @staticmethod
    def groups() -> Iterator[GroupVersion]:
        for group, versions in VERSIONS.items():
            for version in versions:
                yield GroupVersion(group, version)

    def resources(self, kinds: KindTable) -> Iterator[Subresource]:
        """What discovery lists: the metrics that have rules."""
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
    def serves(named: Route) -> bool:
        """Whether a path is about metrics."""
        return named.version in VERSIONS.get(named.group, ())

    async def answer(
        self, store: Store, kinds: KindTable, request: Request, named: Route
    ) -> Response:
        """Raises ApiError: Unavailable where Prometheus does not answer."""
        if request.method not in ("GET", "HEAD") or named.watch:
            raise MethodNotAllowed("metrics can be read, and nothing else")
        asked = query.parse(request.query)
        if named.group == EXTERNAL:
            items = await self._external(named, asked)
        else:
            items = await self._custom(store, kinds, named, asked)
        return json_response(encode(values.listed(named.group, named.version, items)))

    async def _external(self, named: Route, asked: Mapping[str, str]) -> list[Document]:
        metric, namespace = named.plural, named.namespace
        rule = self._rules.of_nothing(metric)
        if rule is None or not namespace or named.name:
            raise NotFound(f"the server could not find the metric {metric} for provided labels")
        conditions = promql.matchers(parse_labels(asked.get("labelSelector", "")))
        found = await self._prometheus.ask(rule.filled(_within(rule, namespace) + conditions))
        if not found:
            raise NotFound(f"the server could not find the metric {metric} for provided labels")
        return [values.of_nothing(metric, rule, one) for one in found]

    async def _custom(
        self, store: Store, kinds: KindTable, named: Route, asked: Mapping[str, str]
    ) -> list[Document]:
        of_namespace = named.plural == OF_NAMESPACE and bool(named.namespace)
        resource = NAMESPACES if of_namespace else named.plural
        name = named.namespace if of_namespace else named.name
        metric = named.name if of_namespace else named.subresource
        if of_namespace and name == ALL:
            raise BadRequest(f'a metric of a namespace is asked of one namespace, not of "{ALL}"')
        kind = next((each for each in kinds if each.resource == resource), None)
        missing = f"the server could not find the metric {metric} for {resource}"
        rule = self._rules.of_objects(kind, metric) if kind is not None else None
        fits = kind is not None and (of_namespace or kind.namespaced == bool(named.namespace))
        if kind is None or rule is None or not fits:
            raise NotFound(missing if name == ALL else f"{missing} {name}")
        labels = parse_labels(asked.get("labelSelector", ""))
        selector = parse_labels(asked.get("metricLabelSelector", ""))
        wish = Asked(named.version, kind, metric, selector, rule)
        namespace = "" if of_namespace else named.namespace
        objects = _objects(store, kind, namespace, name, labels)
        known: dict[str, list[Key]] = defaultdict(list)
        for record in objects:
            known[_told_as(record, rule)].append(record.key)
        found = await self._values(wish, named.namespace, known)
        if not found:
            raise NotFound(f"{missing} {f'* with selector {labels}' if name == ALL else name}")
        return [values.of_object(wish, key, one) for key, one in found.items()]

    async def _values(
        self, wish: Asked, namespace: str, known: Mapping[str, Sequence[Key]]
    ) -> dict[Key, Series]:
        """What is asked, by object.

        ``known``: the objects by their names in Prometheus.  An instance that starts again may have
        several pods for a while: its figures are told of each, and whoever asks sees which go.
        """
        if not known:
            return {}
        rule = wish.rule
        conditions = _within(rule, namespace) + promql.matchers(wish.selector)
        if rule.label:
            conditions.append(promql.one_of(rule.label, known))
        found: dict[Key, Series] = {}
        for one in await self._prometheus.ask(rule.filled(conditions)):
            name = one.labels.get(rule.label, "") if rule.label else next(iter(known))
            for key in known.get(name, ()):
                if key in found:
                    raise InternalError(
                        f"the query of the metric {wish.metric} answers several series of {key}: "
                        f"add them up, as in sum by ({rule.label}) (…)"
                    )
                found[key] = one
        return found


def _within(rule: Rule, namespace: str) -> list[str]:
    if not rule.namespace_label or not namespace:
        return []
    return [promql.equals(rule.namespace_label, namespace)]


def _objects(
    store: Store, kind: Kind, namespace: str, name: str, labels: LabelSelector
) -> list[Record]:
    """The objects that are meant: one by its name, or all that are selected."""
    if name == ALL:
        records = store.objects(storage(kind), namespace)
        return [each for each in records if labels.matches(each.labels)]
    record = store.get(storage(kind), Key(namespace, name))
    return [record] if record is not None else []


def _told_as(record: Record, rule: Rule) -> str:
    """How Prometheus names an object."""
    if not rule.of_instances:
        return record.key.name
    return str(at(record.document(), "metadata", "annotations", INSTANCE) or record.key.name)
