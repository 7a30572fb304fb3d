"""Resource usage of pods and nodes (metrics.k8s.io), which is not stored.

Each observation has the name and labels of a stored object.  Joined nodes are read when a client
requests their usage.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from corral.api.encoding import encode
from corral.api.errors import Details, NotFound
from corral.api.kind import Kind, at
from corral.api.kinds.usage import NODE_METRICS, POD_METRICS
from corral.api.object import Document, Key, Object
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.server.metrics.remote_usage import RemoteUsage
from corral.server.registry.lists import Selector
from corral.server.registry.rest import Rest
from corral.server.request import query
from corral.server.request.call import Call, Handler, json_response, storage
from corral.store import Record

Observe = Callable[[Key], Object | None]
"""Returns the current usage of the object with a key; None if there is none."""


class Observations:
    """Serves get and list of PodMetrics and NodeMetrics.

    ``sources`` observe objects on this host, by the kinds' resources; ``remote`` the others.
    """

    def __init__(self, rest: Rest, sources: Mapping[str, Observe], remote: RemoteUsage) -> None:
        self._rest = rest
        self._sources = sources
        self._remote = remote

    def answers(self) -> dict[str, Handler]:
        """Return the handlers, by the resource name of the kind."""
        return {storage(kind): self._answer for kind in (POD_METRICS, NODE_METRICS)}

    async def _answer(self, call: Call) -> Response:
        """Serve get or list.  Raises NotFound, and BadRequest for an invalid selector."""
        return await self._get(call) if call.name else await self._list(call)

    async def _get(self, call: Call) -> Response:
        presenter = self._rest.presenter(call)
        group, plural = _observed(call.kind)
        record = self._rest.store.get(_resource(group, plural), call.key)
        if record is None:
            details = Details(name=call.name, group=group, kind=plural)
            raise NotFound(f'{_resource(group, plural)} "{call.name}" not found', details=details)
        await self._refresh(call, [record])
        usage = self._as_record(call, record)
        if usage is None:  # in metrics-server's words
            resource = call.kind.name.lower()
            details = Details(name=str(call.key), group=call.kind.group, kind=resource)
            message = f'{_resource(call.kind.group, resource)} "{call.key}" not found'
            raise NotFound(message, details=details)
        return json_response(presenter.one(usage))

    async def _list(self, call: Call) -> Response:
        """Serve all in one response: pages would be observed at different times."""
        presenter = self._rest.presenter(call)
        query.number(call.query, "limit")  # raises for an invalid one
        selector = Selector(call.kind, call.query)
        objects = self._rest.store.objects(_resource(*_observed(call.kind)), call.namespace)
        chosen = [one for one in objects if selector.matches(one)]
        await self._refresh(call, chosen)
        usages = (self._as_record(call, one) for one in chosen)
        return json_response(await presenter.many([one for one in usages if one is not None], {}))

    async def _refresh(self, call: Call, chosen: Iterable[Record]) -> None:
        """Read the joined nodes among the objects, or that they are on."""
        elsewhere = [one for one in chosen if self._observed_here(call, one) is None]
        if storage(call.kind) == NODE_METRICS.resource:
            await self._remote.refresh(one.key.name for one in elsewhere)
            return
        nodes = (at(one.document(), "spec", "nodeName") for one in elsewhere)
        await self._remote.refresh(node for node in nodes if node)

    def _observed_here(self, call: Call, record: Record) -> Object | None:
        observe = self._sources.get(storage(call.kind))
        return observe(record.key) if observe is not None else None

    def _as_record(self, call: Call, record: Record) -> Record | None:
        """Return the usage of an object in the form of a stored object; None if unknown."""
        observed = self._observed_here(call, record) or self._remote.of(storage(call.kind), record)
        if observed is None:
            return None
        now = int(self._rest.now())
        document: Document = {"kind": call.kind.name, "apiVersion": call.kind.api_version}
        document |= msgspec.to_builtins(observed)
        document["metadata"] |= {"creationTimestamp": rfc3339(now)}
        if record.labels:
            document["metadata"]["labels"] = dict(record.labels)
        return Record.of(
            kind=storage(call.kind),
            key=record.key,
            revision=0,
            written=now,
            data=encode(document),
            labels=record.labels,
        )


def _observed(kind: Kind) -> tuple[str, str]:
    assert kind.measured_kind is not None
    return kind.measured_kind


def _resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural
