"""Deletions of what was seen: only another uid, or no object, shows another deletion."""

import pytest
from lightkube.models.core_v1 import ConfigMap
from tests.unit.reconcile.conftest import ADMIN

from corral.api.errors import Conflict, Forbidden
from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.reconcile.deletion import remove, remove_all
from corral.reconcile.objects import uid_of

KEY = Key("default", "one")
KIND = kind_of(ConfigMap)
OBJECT = {"metadata": {"name": "one", "namespace": "default"}}


class Denying:
    """A way to a server whose webhook denies deletions."""

    def __init__(self, server, refusal) -> None:
        self._inner = InProcess(server.handle, ADMIN)
        self._refusal = refusal

    async def send(self, request):
        if request.method == "DELETE":
            raise self._refusal
        return await self._inner.send(request)


async def test_existing_objects_are_deleted(client):
    made = await client.create(ConfigMap, OBJECT)
    assert await remove(client, ConfigMap, KEY, uid_of(made))
    assert (await client.list(ConfigMap)).items == []


async def test_missing_or_recreated_objects_count_as_deleted(client):
    assert not await remove(client, ConfigMap, KEY, "gone")
    await client.create(ConfigMap, OBJECT)
    assert not await remove(client, ConfigMap, KEY, "gone")
    assert len((await client.list(ConfigMap)).items) == 1


@pytest.mark.parametrize("refusal", [Conflict("a webhook says no"), Forbidden("no")])
async def test_a_conflict_on_an_existing_object_is_an_error(server, client, refusal):
    made = await client.create(ConfigMap, OBJECT)
    denied = Client(Denying(server, refusal))
    with pytest.raises(type(refusal), match=str(refusal)):
        await remove(denied, ConfigMap, KEY, uid_of(made))
    with pytest.raises(type(refusal)):
        await remove_all(denied, KIND, "default")


async def test_all_objects_of_a_kind_are_deleted(client):
    for name in ("one", "two"):
        await client.create(ConfigMap, {"metadata": {"name": name, "namespace": "default"}})
    assert not await remove_all(client, KIND, "default")
    assert (await client.list(ConfigMap)).items == []
