"""The ``metadata.managedFields`` in reviews of webhooks."""

import pytest
from tests.unit.server.admission.dynamic.hooks import patch

MAPS = "/api/v1/namespaces/default/configmaps"
A = {"metadata": {"name": "a"}, "data": {"x": "1"}}


def managers(document):
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"]["managedFields"]}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_webhooks_see_the_managed_fields_that_will_be_stored(ask, configure, kind):
    hook = await configure("look", lambda _: {"allowed": True}, kind=kind)
    made = await ask("POST", f"{MAPS}?fieldManager=me", A)
    changed = await ask.patch(f"{MAPS}/a?fieldManager=you", {"data": {"y": "2"}})
    await ask("DELETE", f"{MAPS}/a")
    creation, update, deletion = hook.reviews
    assert (
        managers(creation["object"]) == managers(made) == {"me": {"f:data": {".": {}, "f:x": {}}}}
    )
    assert managers(update["oldObject"]) == managers(made)
    assert managers(update["object"]) == managers(changed)
    assert sorted(managers(changed)) == ["me", "you"]
    assert managers(deletion["oldObject"]) == managers(changed)


async def test_webhooks_cannot_change_managed_fields(ask, configure):
    change = [
        {"op": "add", "path": "/data/y", "value": "2"},
        {"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "somebody"},
    ]
    await configure("change", lambda _: patch(*change), kind="Mutating")
    made = await ask("POST", f"{MAPS}?fieldManager=me", A)
    assert (made.status, made["data"]) == (201, {"x": "1", "y": "2"})
    assert managers(made) == {"me": {"f:data": {".": {}, "f:x": {}}}}
