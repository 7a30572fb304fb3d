"""What nodes of other hosts do with claims: with their own, and with no others."""

import json

import pytest
from tests.unit.server.conftest import CLAIMS, MERGE, Outside

from corral.api.kinds.cdi.population import PHASE, POPULATE
from corral.api.kinds.storage.common import SELECTED_NODE, SHARED_LABEL, STORAGE_LABEL
from corral.api.request import User
from corral.daemon.component_users import CONTROLLER

NODES, VOLUMES = "/api/v1/nodes", "/api/v1/persistentvolumes"
SECRETS, MAPS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
HTTP = {
    "url": "https://images.example/disk.img",
    "secretRef": "login",
    "certConfigMap": "authority",
    "secretExtraHeaders": ["header"],
}
SIZE = {"requests": {"storage": "1Gi"}}


def volume(name, storage, for_claim=""):
    expression = {"key": STORAGE_LABEL, "operator": "In", "values": [storage]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "corral.dev", "volumeHandle": name},
        "nodeAffinity": {"required": terms},
    }
    if for_claim:
        spec["claimRef"] = {"namespace": "default", "name": for_claim}
    return {"metadata": {"name": name}, "spec": spec}


async def claim(ask, name, selected="", content=None):
    annotations = {SELECTED_NODE: selected} if selected else {}
    if content:
        annotations[POPULATE] = json.dumps({"source": content})
    document = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": SIZE},
    }
    made = await ask.as_user(CONTROLLER.name)("POST", CLAIMS, document)
    assert made.status == 201, made.text


@pytest.fixture
async def two(ask):
    """Acts as the node ``two``, which has the storage s2."""
    for name, storage in (("one", "s1"), ("two", "s2")):
        await ask.create(NODES, name, labels={STORAGE_LABEL: storage})
    user = User(name="system:node:two", groups=("system:nodes", "system:authenticated"))
    return Outside(ask.server, user)


def annotate(**annotations):
    return {"metadata": {"annotations": annotations}}


async def test_a_node_reports_progress_of_its_own_claims_only(ask, two):
    for name in ("one", "two"):
        await claim(ask, name, name)
    await claim(ask, "nobodys")
    progress = annotate(**{PHASE: "Running"})
    assert (await two("PATCH", f"{CLAIMS}/two", progress, MERGE)).status == 200
    for other in ("one", "nobodys"):
        assert (await two("PATCH", f"{CLAIMS}/{other}", progress, MERGE)).status == 403
    assert (await two("DELETE", f"{CLAIMS}/two")).status == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (annotate(**{SELECTED_NODE: None}), 200),
        (annotate(**{SELECTED_NODE: "one"}), 403),
        ({"spec": {"volumeName": "any"}}, 403),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
                    ]
                }
            },
            403,
        ),
    ],
)
async def test_a_node_can_unselect_itself_and_change_nothing_else(ask, two, change, status):
    await claim(ask, "data", "two")
    assert (await two("PATCH", f"{CLAIMS}/data", change, MERGE)).status == status


async def test_a_bound_claim_belongs_to_the_node_of_its_volume(ask, two):
    for name, storage in (("pv1", "s1"), ("pv2", "s2")):
        assert (await ask("POST", VOLUMES, volume(name, storage))).status == 201
    await claim(ask, "data", "two")
    await ask("PATCH", f"{CLAIMS}/data", {"spec": {"volumeName": "pv1"}}, MERGE)
    progress = annotate(**{PHASE: "Running"})
    assert (await two("PATCH", f"{CLAIMS}/data", progress, MERGE)).status == 403
    await claim(ask, "other", "one")
    await ask("PATCH", f"{CLAIMS}/other", {"spec": {"volumeName": "pv2"}}, MERGE)
    assert (await two("PATCH", f"{CLAIMS}/other", progress, MERGE)).status == 200


async def test_a_node_reads_secrets_of_its_claims_until_they_are_populated(ask, two):
    for name in ("login", "header", "foreign"):
        await ask.create(SECRETS, name)
    await ask.create(MAPS, "authority")
    named = [f"{SECRETS}/login", f"{SECRETS}/header", f"{MAPS}/authority"]
    await claim(ask, "theirs", "one", {"http": {**HTTP, "secretRef": "foreign"}})
    for path in named:
        assert (await two("GET", path)).status == 403
    await claim(ask, "data", "two", {"http": HTTP})
    for path in named:
        assert (await two("GET", path)).status == 200
    assert (await two("GET", f"{SECRETS}/foreign")).status == 403
    await ask("PATCH", f"{CLAIMS}/data", annotate(**{PHASE: "Succeeded"}), MERGE)
    for path in named:
        assert (await two("GET", path)).status == 403


async def test_a_node_writes_only_volumes_of_its_own_storage(ask, two):
    await claim(ask, "data", "two")
    assert (await two("POST", VOLUMES, volume("pv2", "s2", "data"))).status == 201
    assert (await two("POST", VOLUMES, volume("pv1", "s1", "data"))).status == 403
    label = {"metadata": {"labels": {STORAGE_LABEL: "s1"}}}
    refused = await two("PATCH", f"{NODES}/two", label, MERGE)
    assert refused.status == 403
    assert "the storage of node one" in refused.text


async def test_a_node_writes_no_volume_of_a_shared_directory(ask, two):
    """Not even while it is the only one that has the directory."""
    mark = {"metadata": {"labels": {SHARED_LABEL: "s"}}}
    assert (await ask.as_user(CONTROLLER.name)("PATCH", f"{NODES}/two", mark, MERGE)).status == 200
    await claim(ask, "data", "two")
    document = volume("shared", "s", "data")
    terms = document["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"][0]["key"] = SHARED_LABEL
    assert (await two("POST", VOLUMES, document)).status == 403


async def test_a_node_does_not_change_what_its_claim_is_a_copy_of(ask, two):
    """Else it could read any claim of other hosts, as the source of a copy."""
    await claim(ask, "mine", "two", {"pvc": {"name": "golden"}})
    other = annotate(**{POPULATE: json.dumps({"source": {"pvc": {"name": "secret"}}})})
    answer = await two("PATCH", f"{CLAIMS}/mine", other, MERGE)
    assert answer.status == 422
    assert "metadata.annotations[corral.dev/populate]" in answer.text


@pytest.mark.parametrize(("where", "status"), [("two", 200), ("one", 403)])
async def test_a_node_reports_on_claims_of_a_shared_directory_that_its_pods_use(
    ask, two, where, status
):
    document = volume("shared", "s", "data")
    terms = document["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"][0]["key"] = SHARED_LABEL
    assert (await ask("POST", VOLUMES, document)).status == 201
    await claim(ask, "data")
    bound = {"spec": {"volumeName": "shared"}}
    assert (await ask("PATCH", f"{CLAIMS}/data", bound, MERGE)).status == 200
    pod = {
        "metadata": {"name": "user"},
        "spec": {
            "nodeName": where,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    assert (await ask("POST", "/api/v1/namespaces/default/pods", pod)).status == 201
    saved = annotate(**{"corral.dev/saved-memory": "{}"})
    assert (await two("PATCH", f"{CLAIMS}/data", saved, MERGE)).status == status
    assert (await two("PATCH", f"{VOLUMES}/shared", annotate(a="b"), MERGE)).status == 403
