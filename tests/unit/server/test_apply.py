"""Server-side apply, and the account of who manages what that every write keeps."""

import pytest
from tests.unit.server.conftest import MAPS, MERGE, SETS

APPLY = {"content-type": "application/apply-patch+yaml", "user-agent": "tester/1.0"}
NO_CONFIGURATION = "failed to create typed patch object (default/one; v1, Kind=ConfigMap): "
DEPLOYED = f"{MAPS}/one"


def config_map(**data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one"},
        "data": data,
    }


@pytest.fixture
def apply(ask):
    async def send(configuration, manager="me", *, path=DEPLOYED, force=False, query=""):
        query = f"?fieldManager={manager}&force={str(force).lower()}{query}"
        return await ask("PATCH", path + query, configuration, APPLY)

    return send


def account(answer):
    """Who manages what, in short."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in answer.metadata.get("managedFields", [])
    }


async def test_what_is_applied_and_not_there_is_made(apply):
    made = await apply(config_map(a="1"))
    assert made.status == 201
    assert account(made) == {("me", "Apply", ""): {"f:data": {"f:a": {}}}}
    assert (await apply(config_map(a="1"))).status == 200


async def test_another_value_of_somebody_elses_field_is_a_conflict(apply):
    await apply(config_map(a="1", b="1"))
    refused = await apply(config_map(a="2"), "you")
    assert refused.status == 409
    assert refused["reason"] == "Conflict"
    assert refused["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.a'
    assert refused["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "me"',
                "field": ".data.a",
            }
        ]
    }


async def test_several_conflicts_are_told_by_manager(ask, apply):
    await apply(config_map(a="1", b="1"))
    await ask("PATCH", DEPLOYED + "?fieldManager=they", {"data": {"c": "1"}}, MERGE)
    refused = await apply(config_map(a="2", b="2", c="2"), "you")
    assert refused["message"] == (
        'Apply failed with 3 conflicts: conflicts with "me":\n- .data.a\n- .data.b\n'
        'conflicts with "they" using v1:\n- .data.c'
    )


async def test_force_takes_fields_from_others(apply):
    await apply(config_map(a="1", b="1"))
    taken = await apply(config_map(a="2"), "you", force=True)
    assert taken["data"] == {"a": "2", "b": "1"}
    assert account(taken) == {
        ("me", "Apply", ""): {"f:data": {"f:b": {}}},
        ("you", "Apply", ""): {"f:data": {"f:a": {}}},
    }


async def test_what_is_not_applied_any_more_goes_unless_others_have_it(apply):
    await apply(config_map(a="1", b="1", c="1"))
    await apply(config_map(b="1"), "you")
    left = await apply(config_map(a="1"))
    assert left["data"] == {"a": "1", "b": "1"}


async def test_applying_the_same_again_changes_nothing(apply):
    first = await apply(config_map(a="1"))
    again = await apply(config_map(a="1"))
    assert again.metadata == first.metadata


async def test_a_create_and_an_update_are_booked(ask):
    made = await ask("POST", MAPS, config_map(a="1"), {"user-agent": "kubectl/v1.37 (linux)"})
    assert account(made) == {("kubectl", "Update", ""): {"f:data": {".": {}, "f:a": {}}}}
    changed = await ask("PATCH", DEPLOYED + "?fieldManager=you", {"data": {"a": "2"}}, MERGE)
    assert account(changed) == {
        ("kubectl", "Update", ""): {"f:data": {}},
        ("you", "Update", ""): {"f:data": {"f:a": {}}},
    }
    gone = await ask("PATCH", DEPLOYED + "?fieldManager=you", {"data": None}, MERGE)
    assert account(gone) == {}


async def test_nobody_is_unknown(ask):
    made = await ask("POST", MAPS, config_map(a="1"))
    assert ("unknown", "Update", "") in account(made)


async def test_apply_needs_a_manager(ask):
    refused = await ask("PATCH", DEPLOYED, config_map(), APPLY)
    assert refused.status == 422
    assert refused["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
        "is required for apply patch"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"apiVersion": "v2"},
            "Incorrect version specified in apply patch. Specified patch version: v2, expected: v1",
        ),
        ({"metadata": {"managedFields": []}}, "metadata.managedFields must be nil"),
        ({"dat": {}}, f"{NO_CONFIGURATION}.dat: field not declared in schema"),
        ({"data": []}, f"{NO_CONFIGURATION}.data: expected map, got []"),
    ],
)
async def test_what_cannot_be_applied_is_refused(apply, changes, message):
    refused = await apply({**config_map(), **changes})
    assert refused.status == 400
    assert refused["message"] == message


async def test_a_configuration_may_be_yaml(apply):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  a: 'x'\n"
    assert (await apply(text))["data"] == {"a": "x"}


async def test_a_configuration_may_name_the_version_it_is_for(ask, apply):
    made = await apply(config_map(a="1"))
    wanted = config_map(a="2")
    wanted["metadata"]["resourceVersion"] = made.metadata["resourceVersion"]
    assert (await apply(wanted)).status == 200
    refused = await apply(wanted | {"data": {"a": "3"}})
    assert refused.status == 409
    assert "the object has been modified" in refused["message"]


async def test_a_dry_run_keeps_nothing(ask, apply):
    shown = await apply(config_map(a="1"), query="&dryRun=All")
    assert shown.status == 201
    assert account(shown)
    assert (await ask("GET", DEPLOYED)).status == 404


async def test_a_scaled_set_conflicts_with_who_scaled_it(ask, apply):
    path = SETS + "/lab"
    labels = {"app": "lab"}
    wanted = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "lab"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"domain": {"devices": {}}},
            },
        },
    }
    made = await apply(wanted, "kubectl", path=path)
    assert made.status == 201, made.text
    agent = MERGE | {"user-agent": "kubectl/v1.37"}
    await ask("PATCH", path + "/scale", {"spec": {"replicas": 3}}, agent)
    refused = await apply(wanted, "kubectl", path=path)
    assert refused["message"] == (
        'Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" '
        "using kubevirt.io/v1: .spec.replicas"
    )
    del wanted["spec"]["replicas"]
    left = await apply(wanted, "kubectl", path=path)
    assert left["spec"]["replicas"] == 3
