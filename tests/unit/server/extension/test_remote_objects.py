from dataclasses import replace

import pytest

from corral.api.errors import Conflict, Forbidden
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.object import Key
from corral.api.request import Request, User
from corral.server.authz.attributes import Attributes
from corral.server.extension.remote_objects import RemoteObjects, RemoteRest
from corral.server.request.call import Call, storage

MAPS = "/api/v1/namespaces/default/configmaps"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
JANE = User(name="jane", groups=("system:authenticated",))


@pytest.fixture
async def vm(ask, machine):
    template = {"metadata": {}, "spec": machine["spec"]}
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db"},
        "spec": {"runStrategy": "Halted", "template": template},
    }
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    return answer.document


def call(**changed):
    made = Call(
        request=Request(method="PUT", path=""),
        user=JANE,
        verb="update",
        kind=VIRTUAL_MACHINE,
        group=VIRTUAL_MACHINE.group,
        version=VIRTUAL_MACHINE.versions[0],
        namespace="default",
        name="db",
        subresource="",
        query={},
    )
    return replace(made, **changed)


async def test_a_function_runs_again_until_it_has_read_everything(ask, client):
    for name in ("a", "b"):
        await ask("POST", MAPS, {"metadata": {"name": name}, "data": {"next": "b"}})
    objects = RemoteObjects(client)
    runs = []

    async def follow():
        runs.append(None)
        first = objects.latest("configmaps", Key("default", "a")).document()
        second = objects.latest("configmaps", Key("default", first["data"]["next"]))
        return second.document()["metadata"]["name"], objects.latest(
            "configmaps", Key("default", "c")
        )

    assert await objects.evaluate(follow) == ("b", None)
    assert len(runs) == 4  # three objects were missing


@pytest.mark.parametrize("name", ["", "a/b", ".."])
async def test_a_name_that_no_object_has_is_of_none(client, name):
    objects = RemoteObjects(client)

    async def read():
        return objects.latest("configmaps", Key("default", name))

    assert await objects.evaluate(read) is None


async def test_rights_are_reviewed_by_the_api_server(ask, policy, client):
    await ask(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "view"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        },
    )
    objects = RemoteObjects(client)
    right = Attributes(JANE, "get", "", "configmaps", namespace="default", name="a")

    async def require(attributes):
        objects.require(attributes)

    await objects.evaluate(lambda: require(right))
    with pytest.raises(Forbidden, match='User "jane" cannot delete resource "configmaps"'):
        await objects.evaluate(lambda: require(right._replace(verb="delete")))
    with pytest.raises(Forbidden, match='path "/metrics"'):
        await objects.evaluate(lambda: require(Attributes(JANE, "get", path="/metrics")))


async def test_an_update_is_sent_and_restarts_where_it_is_stale(ask, client, vm):
    rest = RemoteRest(client, RemoteObjects(client))
    runs = []

    async def label():
        record = rest.store.latest(storage(VIRTUAL_MACHINE), Key("default", "db"))
        new = record.document()
        new["metadata"]["labels"] = {"run": str(len(runs))}
        if not runs:  # somebody else is quicker
            await ask("PATCH", f"{VMS}/db", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
        runs.append(None)
        changed = await rest.evaluate_update(call(), record, new)
        await rest.put(call(), changed)

    await rest.answer(label)
    stored = (await ask("GET", f"{VMS}/db")).metadata
    assert stored["labels"] == {"run": "1"}
    assert stored["annotations"] == {"a": "b"}


MERGE = {"content-type": "application/merge-patch+json"}


async def test_a_request_that_is_always_stale_is_a_conflict(ask, client, vm):
    rest = RemoteRest(client, RemoteObjects(client))

    async def label():
        record = rest.store.latest(storage(VIRTUAL_MACHINE), Key("default", "db"))
        old = record.document()
        old["metadata"] |= {"labels": {"a": "b"}, "resourceVersion": "1"}
        await rest.put(call(), old)

    with pytest.raises(Conflict, match="the object has been modified"):
        await rest.answer(label)


async def test_a_dry_run_is_validated_by_the_api_server_and_changes_nothing(ask, client, vm):
    rest = RemoteRest(client, RemoteObjects(client))
    dry = call(query={"dryRun": "All"})

    async def halve():
        record = rest.store.latest(storage(VIRTUAL_MACHINE), Key("default", "db"))
        new = record.document()
        assert await rest.evaluate_update(dry, record, record.document()) is None
        new["spec"]["runStrategy"] = "Sometimes"
        return await rest.evaluate_update(dry, record, new)

    with pytest.raises(Exception, match="Sometimes"):
        await rest.answer(halve)
    assert (await ask("GET", f"{VMS}/db"))["spec"]["runStrategy"] == "Halted"
