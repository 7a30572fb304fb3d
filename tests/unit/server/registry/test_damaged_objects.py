"""What is answered about objects that the disk has damaged."""

import asyncio
import json

import pytest

from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.daemon.bootstrap import create_defaults, make_namespaces
from corral.daemon.damaged_objects import report_damaged
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"


def damage(path, text):
    content = path.read_bytes()
    place = content.rindex(text)
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])


@pytest.fixture
async def path(tmp_path, asker):
    """A store with namespaces, and config maps of which one is damaged."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    server = ApiServer(store)
    await make_namespaces(server)
    ask = asker(server)
    for name in ("kept", "lost"):
        metadata = {"name": name, "finalizers": ["example.com/x"]}
        await ask("POST", MAPS, {"metadata": metadata, "data": {"of": f"value-of-{name}"}})
    await store.close()
    damage(path, b"value-of-lost")
    return path


@pytest.fixture
async def damaged(asker, path):
    store = Store.open(path)
    yield asker(ApiServer(store))
    await store.close()


async def test_other_objects_of_the_kind_are_served(damaged):
    answer = await damaged("GET", MAPS)
    assert [each["metadata"]["name"] for each in answer.document["items"]] == ["kept"]
    assert answer.warnings == [
        '299 - "configmaps \\"lost\\" in namespace default is damaged on disk and not listed"'
    ]
    assert (await damaged("GET", "/api/v1/namespaces/kube-system/configmaps")).warnings == []
    assert (await damaged("GET", "/api/v1/namespaces/default/secrets")).warnings == []
    changed = await damaged.patch(f"{MAPS}/kept", {"data": {"of": "new"}})
    assert changed.document["data"] == {"of": "new"}
    assert (await damaged.create(MAPS, "more"))["metadata"]["name"] == "more"


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT"])
async def test_a_damaged_object_is_an_internal_error(damaged, method):
    sent = {"metadata": {"name": "lost"}}
    headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else None
    answer = await damaged(method, f"{MAPS}/lost", None if method == "GET" else sent, headers)
    assert answer.status == 500
    assert answer["reason"] == "StorageReadError"
    assert "corral restore --damaged" in answer["message"]
    made = await damaged("POST", MAPS, sent)
    assert (made.status, made["reason"]) == (500, "StorageReadError")


async def test_a_damaged_object_can_be_deleted(damaged):
    dry = await damaged("DELETE", f"{MAPS}/lost?dryRun=All")
    assert dry.status == 200
    for sent in ({"uid": "u"}, {"resourceVersion": "7"}):
        answer = await damaged("DELETE", f"{MAPS}/lost", {"preconditions": sent})
        assert (answer.status, answer["reason"]) == (500, "StorageReadError")
    gone = await damaged("DELETE", f"{MAPS}/lost")
    assert gone.status == 200
    assert gone["details"] == {"name": "lost", "kind": "configmaps"}
    assert (await damaged("GET", f"{MAPS}/lost")).status == 404
    assert (await damaged("DELETE", f"{MAPS}/lost")).status == 404
    assert (await damaged("GET", MAPS)).warnings == []
    assert (await damaged.create(MAPS, "lost"))["metadata"]["name"] == "lost"


async def test_deleting_a_damaged_object_needs_the_right_to_delete(damaged):
    stranger = damaged.as_user("bob")
    assert (await stranger("DELETE", f"{MAPS}/lost")).status == 403
    assert (await damaged("GET", f"{MAPS}/lost")).status == 500


async def test_the_server_reports_damaged_objects_and_is_ready(damaged):
    answer = await damaged("GET", "/readyz/objects")
    assert answer.status == 500
    assert 'configmaps "lost" in namespace default cannot be read' in answer.text
    assert (await damaged("GET", "/readyz")).status == 200
    await damaged("DELETE", f"{MAPS}/lost")
    assert (await damaged("GET", "/readyz/objects")).text == "ok"


async def test_each_damaged_object_has_an_event(damaged):
    context = ControllerContext(Client(InProcess(damaged.server.handle, ADMINISTRATOR)))
    report_damaged(damaged.server, context)
    watch = damaged.server.store.watch("events", damaged.server.store.revision)
    task = asyncio.create_task(context._events.run())
    (event,) = await watch.next_events(30)
    task.cancel()
    written = event.record.document()
    assert (written["type"], written["reason"]) == ("Warning", "ObjectDamaged")
    assert written["involvedObject"] == {
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "lost",
    }  # fmt: skip
    assert "corral restore --damaged" in written["message"]


@pytest.mark.parametrize("lost", [b'"name":"kube-public"', b'"name":"system-node-critical"'])
async def test_a_manager_starts_despite_damaged_objects_that_it_creates(asker, path, lost):
    store = Store.open(path)
    await create_defaults(ApiServer(store))
    await store.close()
    damage(path, lost)
    store = Store.open(path)
    ask = asker(ApiServer(store))
    await create_defaults(ask.server)
    kind = "namespaces" if b"kube" in lost else "priorityclasses.scheduling.k8s.io"
    name = json.loads(b"{%b}" % lost)["name"]
    assert (kind, Key("", name)) in [(each.kind, each.key) for each in store.damaged]
    assert (await ask("GET", "/api/v1/namespaces/default")).status == 200
    await store.close()
