"""When a silent node has fenced itself."""

from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Node

from corral.api.errors import NotFound
from corral.cluster.taint_eviction.silent_nodes import SilentNodes


def lease(version):
    metadata = {"name": "a", "namespace": "kube-node-lease", "resourceVersion": version}
    return msgspec.convert({"metadata": metadata}, Lease)


def node(ready="Unknown", fencing="True", uid="n"):
    conditions = [{"type": "Ready", "status": ready}]
    conditions += [{"type": "SelfFencing", "status": fencing}] if fencing else []
    metadata = {"name": "a", "uid": uid}
    return msgspec.convert({"metadata": metadata, "status": {"conditions": conditions}}, Node)


class World:
    """The store, a cache of it, and a clock."""

    def __init__(self):
        self.now = 0.0
        self.stored = {Lease: lease("1"), Node: node()}
        informer = SimpleNamespace(handle=self._handle)
        context = SimpleNamespace(
            informers=SimpleNamespace(of=lambda _view: informer),
            client=self,
            monotonic=lambda: self.now,
        )
        self.nodes = SilentNodes(context)
        self.observe(self.stored[Lease])

    def _handle(self, handler):
        self.observe = lambda found: handler(None, found)

    async def get(self, view, _name, _namespace=""):
        if self.stored[view] is None:
            raise NotFound("gone")
        return self.stored[view]

    async def left(self, seen=None):
        return await self.nodes.seconds_until_fenced(seen or node())


@pytest.fixture
def world():
    return World()


async def test_fifty_seconds_after_the_last_renewal_was_seen(world):
    world.now = 49.0
    assert await world.left() == 1.0
    world.now = 50.0
    assert await world.left() == 0.0


async def test_a_renewal_begins_anew(world):
    world.now = 30.0
    world.observe(lease("2"))
    world.stored[Lease] = lease("2")
    world.now = 60.0
    assert await world.left() == 20.0


async def test_an_event_that_repeats_a_version_is_no_renewal(world):
    world.now = 30.0
    world.observe(lease("1"))
    assert await world.left() == 20.0


@pytest.mark.parametrize(
    "seen", [node(fencing=None), node(fencing="False"), node(ready="True"), node(ready="False")]
)
async def test_nodes_that_do_not_fence_themselves_are_waited_for(world, seen):
    world.now = 1000.0
    assert await world.left(seen) is None


@pytest.mark.parametrize(
    "changed",
    [
        {Lease: lease("2")},
        {Lease: None},
        {Node: None},
        {Node: node(fencing="False")},
        {Node: node(uid="another")},
        {Node: node(ready="True")},
    ],
)
async def test_what_the_cache_has_missed_counts(world, changed):
    world.now = 50.0
    world.stored |= changed
    assert await world.left() == 50.0


async def test_a_lease_that_was_never_seen_was_seen_now(world):
    world.now = 1000.0
    other = msgspec.convert(msgspec.to_builtins(node()) | {"metadata": {"name": "b"}}, Node)
    assert await world.left(other) == 50.0
