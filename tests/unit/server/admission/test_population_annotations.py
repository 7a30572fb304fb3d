"""Tests of who may say in a claim what it is filled from."""

import json

import pytest
from tests.unit.server.authz.test_authorizer import bind, role, rule, user
from tests.unit.server.conftest import MERGE, STRATEGIC

from corral.api.kinds.cdi import population
from corral.daemon.component_users import CONTROLLER

CLAIMS = "/api/v1/namespaces/lab/persistentvolumeclaims"
REQUEST = json.dumps({"source": {"pvc": {"name": "image", "namespace": "golden"}}})
OTHER = json.dumps({"source": {"http": {"url": "http://images.example/disk.img"}}})
APPLY = {"content-type": "application/apply-patch+yaml"}
JSON_PATCH = {"content-type": "application/json-patch+json"}


def claim(name="mine", **annotations):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
    }


def annotated_claim(request=REQUEST, name="mine"):
    return claim(name, **{population.POPULATE: request})


@pytest.fixture
async def bob(ask):
    """May do everything in the namespace ``lab``, and nothing in ``golden``."""
    for name in ("lab", "golden"):
        await ask.create("/api/v1/namespaces", name)
    await role(ask, "all", rule("*", "*", apiGroups=["*"]), namespace="lab")
    await bind(ask, "bobs", "Role", "all", user("bob"), namespace="lab")
    return ask.as_user("bob")


async def makes(ask, document):
    """As the controllers make it."""
    controller = ask.as_user(CONTROLLER.name)
    assert (await controller("POST", CLAIMS, document)).status == 201


def is_refused(answer):
    assert answer.status == 422, answer.text
    (cause,) = answer["details"]["causes"]
    assert cause["field"] == "metadata.annotations[corral.dev/populate]"
    assert "create a DataVolume" in cause["message"]
    assert "corral.dev/populate" in answer["message"]
    return True


async def test_users_cannot_create_a_claim_with_the_populate_annotation(ask, bob):
    assert is_refused(await bob("POST", CLAIMS, annotated_claim()))
    assert is_refused(await bob("PATCH", f"{CLAIMS}/mine?fieldManager=f", annotated_claim(), APPLY))
    assert is_refused(await ask("POST", CLAIMS, annotated_claim()))
    assert (await ask("GET", f"{CLAIMS}/mine")).status == 404


@pytest.mark.parametrize("before", [None, OTHER])
async def test_users_cannot_add_the_populate_annotation_later(ask, bob, before):
    await makes(ask, claim() if before is None else annotated_claim(before))
    path = f"{CLAIMS}/mine"
    change = {"metadata": {"annotations": {population.POPULATE: REQUEST}}}
    at = f"/metadata/annotations/{population.POPULATE.replace('/', '~1')}"
    assert is_refused(await bob.patch(path, change, MERGE))
    assert is_refused(await bob.patch(path, change, STRATEGIC))
    if before is not None:
        assert is_refused(
            await bob.patch(path, [{"op": "add", "path": at, "value": REQUEST}], JSON_PATCH)
        )
    assert is_refused(await bob("PUT", path, annotated_claim()))
    assert is_refused(
        await bob("PATCH", f"{path}?fieldManager=f&force=true", annotated_claim(), APPLY)
    )
    assert is_refused(await bob.patch(f"{path}/status", change, MERGE))
    kept = (await ask("GET", path)).metadata.get("annotations") or {}
    assert kept.get(population.POPULATE) == before


async def test_other_fields_of_a_populated_claim_can_be_changed(ask, bob):
    await makes(ask, annotated_claim())
    path = f"{CLAIMS}/mine"
    labelled = await bob.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.status == 200
    document = labelled.document
    document["metadata"]["annotations"]["note"] = "mine"
    assert (await bob("PUT", path, document)).status == 200
    applied = await bob("PATCH", f"{path}?fieldManager=f", claim(note="mine"), APPLY)
    assert applied.status == 200, applied.text
    assert applied.metadata["annotations"][population.POPULATE] == REQUEST
    target = {"metadata": {"annotations": {population.UPLOAD_TARGET: ""}}}
    assert (await bob.patch(path, target)).status == 200
    assert (await bob("POST", CLAIMS, claim("up", **{population.UPLOAD_TARGET: ""}))).status == 201
