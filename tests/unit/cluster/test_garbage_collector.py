"""Tests of the garbage collector's own part, without a server."""

from types import SimpleNamespace

from tests.counting import Compared

from corral.api.errors import NotFound
from corral.api.kinds.core.kinds import CONFIG_MAP
from corral.api.object import OwnerReference
from corral.cluster.garbage_collector import Garbage
from corral.reconcile.objects import Partial, PartialMeta


class Client:
    """Finds no object, and records the requested changes."""

    def __init__(self):
        self.patches = []

    async def get(self, _view, name, _namespace, *, kind):
        raise NotFound(f"{kind.plural} {name!r} not found")

    async def patch(self, _view, _key, document, *, kind):
        assert kind is CONFIG_MAP
        self.patches.append(document)


async def test_absent_owners_are_not_compared_with_all_present_ones():
    kinds = {"ConfigMap": CONFIG_MAP}
    context = SimpleNamespace(
        client=(client := Client()),
        kinds=SimpleNamespace(
            subscribe=lambda _: None,
            table=SimpleNamespace(by_kind=lambda _, kind: kinds.get(kind)),
        ),
        informers=None,
    )
    owners = tuple(
        OwnerReference(api_version="v1", kind=kind, name="x", uid=Compared(f"{kind}-{number}"))
        for number in range(100)
        for kind in ("ConfigMap", "Unknown")
    )
    metadata = PartialMeta(name="child", namespace="default", uid="u1", owner_references=owners)
    loop = Garbage(context)
    loop._changed(CONFIG_MAP, None, Partial(metadata=metadata))
    Compared.times = 0
    await loop.reconcile("u1")
    kept = [each["uid"] for each in client.patches[0]["metadata"]["ownerReferences"]]
    assert kept == [f"Unknown-{number}" for number in range(100)]
    assert Compared.times < 1000
