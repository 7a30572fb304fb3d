"""Present resource usage of pods and nodes, which is not stored (metrics.k8s.io).

Each observation is about a stored object, and has its name and labels.  Nodes of other hosts are
read when a client requests their usage.
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
"""What is known at present of the object with this key; None where nothing is."""


class Observations:
    """Answers get and list of the kinds that observe others.

    ``sources`` observe what is on this host, by the kinds' resources; ``remote`` observes the rest.
    """

    def __init__(self, rest: Rest, sources: Mapping[str, Observe], remote: RemoteUsage) -> None:
        self._rest = rest
        self._sources = sources
        self._remote = remote

    def answers(self) -> dict[str, Handler]:
        """What answers each kind of observation, by the name that it would be stored under."""
        return {storage(kind): self._answer for kind in (POD_METRICS, NODE_METRICS)}

    async def _answer(self, call: Call) -> Response:
        """Raises NotFound, and BadRequest for a selector that cannot be read."""
        return await self._get(call) if call.name else await self._list(call)

    async def _get(self, call: Call) -> Response:
        presenter = self._rest.presenter(call)
        group, plural = _observed(call.kind)
        about = self._rest.store.get(_resource(group, plural), call.key)
        if about is None:
            details = Details(name=call.name, group=group, kind=plural)
            raise NotFound(f'{_resource(group, plural)} "{call.name}" not found', details=details)
        await self._refresh(call, [about])
        record = self._record(call, about)
        if record is None:  # in metrics-server's words
            resource = call.kind.name.lower()
            details = Details(name=str(call.key), group=call.kind.group, kind=resource)
            message = f'{_resource(call.kind.group, resource)} "{call.key}" not found'
            raise NotFound(message, details=details)
        return json_response(presenter.one(record))

    async def _list(self, call: Call) -> Response:
        """All that is known, in one answer: pages would be of different moments."""
        presenter = self._rest.presenter(call)
        query.number(call.query, "limit")  # refused where it is none
        selector = Selector(call.kind, call.query)
        objects = self._rest.store.objects(_resource(*_observed(call.kind)), call.namespace)
        chosen = [one for one in objects if selector.matches(one)]
        await self._refresh(call, chosen)
        found = (self._record(call, one) for one in chosen)
        return json_response(await presenter.many([one for one in found if one is not None], {}))

    async def _refresh(self, call: Call, chosen: Iterable[Record]) -> None:
        """Read the nodes of other hosts that the objects are on, or are."""
        elsewhere = [one for one in chosen if self._observed_here(call, one) is None]
        if storage(call.kind) == NODE_METRICS.resource:
            await self._remote.refresh(one.key.name for one in elsewhere)
            return
        nodes = (at(one.document(), "spec", "nodeName") for one in elsewhere)
        await self._remote.refresh(node for node in nodes if node)

    def _observed_here(self, call: Call, about: Record) -> Object | None:
        observe = self._sources.get(storage(call.kind))
        return observe(about.key) if observe is not None else None

    def _record(self, call: Call, about: Record) -> Record | None:
        """What is known of an object, in the form in which stored ones are presented."""
        seen = self._observed_here(call, about) or self._remote.of(storage(call.kind), about)
        if seen is None:
            return None
        now = int(self._rest.now())
        document: Document = {"kind": call.kind.name, "apiVersion": call.kind.api_version}
        document |= msgspec.to_builtins(seen)
        document["metadata"] |= {"creationTimestamp": rfc3339(now)}
        if about.labels:
            document["metadata"]["labels"] = dict(about.labels)
        return Record.of(
            kind=storage(call.kind),
            key=about.key,
            revision=0,
            written=now,
            data=encode(document),
            labels=about.labels,
        )


def _observed(kind: Kind) -> tuple[str, str]:
    assert kind.measured_kind is not None
    return kind.measured_kind


def _resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural
