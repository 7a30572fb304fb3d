"""Server-side apply, and the account of who manages what that every write keeps."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.server.conftest import MACHINES, MAPS, MERGE, SETS, Asker

from corral.api import yaml
from corral.api.request import User

APPLY = {"content-type": "application/apply-patch+yaml", "user-agent": "tester/1.0"}
NO_CONFIGURATION = "failed to create typed patch object (default/one; /v1, Kind=ConfigMap): "
FIELDS = st.sampled_from(
    ["name", "metadata", "spec", "labels", "ports", "containerPort", "env", "containers", "status"]
)
POD = {"containers": [{"name": "a", "image": "b"}]}
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


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3"])
async def test_deprecated_fields_are_applied_as_their_replacements(apply, replica_set, version):
    path = f"{SETS.replace('/v1/', f'/{version}/')}/lab"
    spec = replica_set["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "root", "registryDisk": {"image": "demo"}}]
    spec["domain"]["devices"] = {"disks": [{"name": "disk", "volumeName": "root"}]}
    replica_set["apiVersion"] = f"kubevirt.io/{version}"
    made, again = [await apply(replica_set, path=path) for _ in range(2)]
    assert (made.status, again.status) == (201, 200), made.text
    assert made.metadata["resourceVersion"] == again.metadata["resourceVersion"]
    stored = again["spec"]["template"]["spec"]
    assert stored["volumes"] == [{"name": "root", "containerDisk": {"image": "demo"}}]
    assert [each["name"] for each in stored["domain"]["devices"]["disks"]] == ["root"]


async def test_unknown_old_fields_name_the_current_ones(ask, apply, replica_set):
    spec = replica_set["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "root", "registryDisk": {"image": "demo"}}]
    for answer in (
        await apply(replica_set, path=f"{SETS}/lab"),
        await ask("POST", f"{SETS}?fieldValidation=Strict", replica_set),
        await ask("POST", SETS, replica_set),
    ):
        assert answer.status in (400, 422)
        assert "(today it is called containerDisk)" in " ".join(
            [answer["message"], *answer.warnings]
        )


async def test_applying_a_missing_object_creates_it(apply):
    made = await apply(config_map(a="1"))
    assert made.status == 201
    assert account(made) == {("me", "Apply", ""): {"f:data": {"f:a": {}}}}
    assert (await apply(config_map(a="1"))).status == 200


async def test_managed_fields_are_sorted(ask, apply):
    first = {
        "metadata": {"name": "a", "labels": {"z": "1", "b": "2"}},
        "data": {"k": "1", "a": "2"},
    }
    await ask("POST", MAPS, first)
    more = {"metadata": {"annotations": {"n": "1"}, "labels": {"c": "1"}}, "data": {"b": "1"}}
    changed = await ask.patch(f"{MAPS}/a", more)

    def is_ordered(fields):
        return [*fields] == sorted(fields) and all(map(is_ordered, fields.values()))

    (entry,) = changed.metadata["managedFields"]
    assert is_ordered(entry["fieldsV1"])
    assert [*entry["fieldsV1"]["f:data"]] == [".", "f:a", "f:b", "f:k"]


async def test_a_different_value_of_a_field_of_another_manager_is_a_conflict(apply):
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


async def test_conflicts_are_grouped_by_manager(ask, apply):
    await apply(config_map(a="1", b="1"))
    await ask("PATCH", DEPLOYED + "?fieldManager=they", {"data": {"c": "1"}}, MERGE)
    refused = await apply(config_map(a="2", b="2", c="2"), "you")
    assert refused["message"] == (
        'Apply failed with 3 conflicts: conflicts with "me":\n- .data.a\n- .data.b\n'
        'conflicts with "they" using v1:\n- .data.c'
    )


async def test_force_takes_over_fields_of_other_managers(apply):
    await apply(config_map(a="1", b="1"))
    taken = await apply(config_map(a="2"), "you", force=True)
    assert taken["data"] == {"a": "2", "b": "1"}
    assert account(taken) == {
        ("me", "Apply", ""): {"f:data": {"f:b": {}}},
        ("you", "Apply", ""): {"f:data": {"f:a": {}}},
    }


async def test_fields_no_longer_applied_are_removed_unless_others_manage_them(apply):
    await apply(config_map(a="1", b="1", c="1"))
    await apply(config_map(b="1"), "you")
    left = await apply(config_map(a="1"))
    assert left["data"] == {"a": "1", "b": "1"}


async def test_applying_with_a_uid_does_not_recreate_the_object(ask, apply):
    configuration = config_map(a="1")
    configuration["metadata"]["uid"] = "7"
    refused = await apply(configuration)
    assert refused.status == 409
    assert refused["message"] == (
        'Operation cannot be fulfilled on configmaps "one": uid mismatch: '
        "the provided object specified uid 7, and no existing object was found"
    )
    assert (await ask("GET", DEPLOYED)).status == 404


LARGE = {f"key-{number}": "x" * 100 for number in range(1000)}


async def test_a_large_configuration_is_applied_like_any_other(ask, apply):
    """It is worked on beside the requests of others."""
    assert (await apply(config_map(**LARGE))).status == 201
    changed = await apply(config_map(**LARGE | {"key-1": "y"}))
    assert changed["data"] == LARGE | {"key-1": "y"}
    assert (await apply(config_map(a="1")))["data"] == {"a": "1"}


async def test_a_large_configuration_is_applied_to_the_latest_object(ask, apply):
    """What somebody else writes meanwhile is neither lost nor in the way."""
    await ask("POST", MAPS, config_map(b="1"))
    applied = asyncio.create_task(apply(config_map(**LARGE)))
    await asyncio.sleep(0)
    await ask("PATCH", DEPLOYED, {"data": {"c": "1"}}, MERGE)
    assert (await applied)["data"] == LARGE | {"b": "1", "c": "1"}


@pytest.mark.parametrize(
    ("path", "made", "booked"),
    [
        ("/api/v1/namespaces", {}, {"f:metadata": {"f:labels"}}),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1}}}},
            {"f:spec": {"f:accessModes", "f:resources", "f:volumeMode"}},
        ),
        (
            "/api/v1/namespaces/default/services",
            {"spec": {"ports": [{"port": 80}]}},
            {"f:spec": {"f:ports", "f:type", "f:sessionAffinity", "f:internalTrafficPolicy"}},
        ),
    ],
)
async def test_fields_set_by_the_server_have_no_manager(ask, path, made, booked):
    """But who leaves a field to the defaults of Kubernetes' own kinds manages it all the same."""
    answer = await ask("POST", path, {"metadata": {"name": "one"}, **made})
    assert answer.status == 201, answer.text
    (entry,) = answer.metadata["managedFields"]
    found = {part: set(below) - {"."} for part, below in entry["fieldsV1"].items()}
    assert found == booked


async def test_the_status_of_a_new_pod_is_not_managed_by_its_creator(ask):
    pod = {"metadata": {"name": "one"}, "spec": POD, "status": {"phase": "Failed"}}
    answer = await ask("POST", "/api/v1/namespaces/default/pods", pod)
    (entry,) = answer.metadata["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:spec"}


async def test_of_two_entries_of_one_manager_the_last_counts(ask, apply):
    made = await apply(config_map(a="1", b="1"))
    (entry,) = made.metadata["managedFields"]
    twice = [entry, entry | {"fieldsV1": {"f:data": {"f:a": {}}}}]
    patched = await ask("PATCH", DEPLOYED, {"metadata": {"managedFields": twice}}, MERGE)
    assert patched.metadata["managedFields"] == twice[1:]


async def test_applying_an_object_of_another_name_is_rejected(ask, apply):
    refused = await apply(config_map(a="1"), path=f"{MAPS}/another")
    assert refused.status == 400
    assert "does not match the name on the URL (another)" in refused["message"]
    assert (await ask("GET", DEPLOYED)).status == 404


async def test_managed_fields_with_an_invalid_time_are_rejected(ask, apply, replica_set):
    made = await apply(config_map(a="1"))
    odd = [made.metadata["managedFields"][0] | {"manager": "other", "time": "soon"}]
    refused = await ask("PATCH", DEPLOYED, {"metadata": {"managedFields": odd}}, MERGE)
    assert 'parsing time "soon"' in refused["message"]
    made = await apply(replica_set, path=f"{SETS}/lab")
    entries = made.metadata["managedFields"]
    odd = [entries[0] | {"manager": "other", "time": "soon"}]
    kept = await ask("PATCH", f"{SETS}/lab", {"metadata": {"managedFields": odd}}, MERGE)
    assert kept.metadata["managedFields"] == entries


EXAMPLES = [
    pytest.param(example, id=f"{file.name}: {example['kind']}")
    for file in sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))
    for example in yaml.load_all(file.read_bytes())
    if example["kind"] != "VirtualMachineInstance"  # its disks are one field, and get a bus
    and file.name != "testreplicaset-v1alpha2.yaml"  # has fields that are in no schema
]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_applying_an_example_again_changes_nothing(ask, apply, example):
    group, kind = example["apiVersion"], example["kind"]
    metadata = example["metadata"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    known = (await ask("GET", root))["resources"]
    (found,) = [each for each in known if each["kind"] == kind and "/" not in each["name"]]
    scope = f"/namespaces/{metadata.get('namespace', 'default')}" if found["namespaced"] else ""
    path = f"{root}{scope}/{found['name']}/{metadata['name']}"
    first = await apply(example, path=path)
    assert first.status in (200, 201), first.text
    again = await apply(example, path=path)
    assert again.status == 200, again.text
    assert again.document == first.document


@pytest.mark.parametrize(
    ("path", "configuration"),
    [
        (
            "/api/v1/namespaces/default/services/one",
            {"spec": {"ports": [{"port": 80}], "selector": {}}, "status": {}},
        ),
        (
            "/api/v1/namespaces/default/pods/one",
            {"spec": {"securityContext": {}, "containers": [
                {"name": "a", "image": "b", "resources": {}, "securityContext": {}}]}},
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims/one",
            {"spec": {"accessModes": ["ReadWriteOnce"], "selector": {},
                      "resources": {"requests": {"storage": "1024Mi"}}}},
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/one",
            {"spec": {"strategy": {}, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}],
                         "containers": [{"name": "c", "image": "d", "resources": {}}]}}}},
        ),
        (
            f"{MACHINES}/one",
            {"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}, "cpu": {},
                                 "features": {}, "machine": {}}}},
        ),
        (
            "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/one",
            {"spec": {"runStrategy": "Halted", "template": {"metadata": {}, "spec": {
                "domain": {"devices": {}, "features": {}, "memory": {"guest": "64Mi"}}}}}},
        ),
    ],
)  # fmt: skip
async def test_applying_bare_objects_again_changes_nothing(
    ask, apply, monkeypatch, path, configuration
):
    """Defaults fill them, and stay; that it was a second later is no change."""
    root, _, plural = path.rpartition("/")[0].rpartition("/")
    root = root.partition("/namespaces")[0]
    known = (await ask("GET", root))["resources"]
    (kind,) = [each["kind"] for each in known if each["name"] == plural]
    configuration = {"apiVersion": root.removeprefix("/apis/").removeprefix("/api/"), "kind": kind,
              "metadata": {"name": "one", "labels": {}}, **configuration}  # fmt: skip
    first = await apply(configuration, path=path)
    assert first.status == 201, first.text
    later = ask.server.rest.now() + 60
    monkeypatch.setattr(ask.server.rest, "now", lambda: later)
    again = await apply(configuration, path=path)
    assert again.document == first.document


async def test_applying_the_same_again_changes_nothing(apply):
    first = await apply(config_map(a="1"))
    again = await apply(config_map(a="1"))
    assert again.metadata == first.metadata


async def test_creates_and_updates_are_in_managed_fields(ask):
    made = await ask("POST", MAPS, config_map(a="1"), {"user-agent": "kubectl/v1.37 (linux)"})
    assert account(made) == {("kubectl", "Update", ""): {"f:data": {".": {}, "f:a": {}}}}
    changed = await ask("PATCH", DEPLOYED + "?fieldManager=you", {"data": {"a": "2"}}, MERGE)
    assert account(changed) == {
        ("kubectl", "Update", ""): {"f:data": {}},
        ("you", "Update", ""): {"f:data": {"f:a": {}}},
    }
    gone = await ask("PATCH", DEPLOYED + "?fieldManager=you", {"data": None}, MERGE)
    assert account(gone) == {}


async def test_requests_without_a_user_agent_have_the_manager_unknown(ask):
    made = await ask("POST", MAPS, config_map(a="1"))
    assert ("unknown", "Update", "") in account(made)


async def test_apply_needs_a_field_manager(ask):
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
        (
            {"data": {"a": 1}},
            f"{NO_CONFIGURATION}.data.a: expected string, got &value.valueUnstructured{{Value:1}}",
        ),
        (
            {"immutable": "yes"},
            f'{NO_CONFIGURATION}.immutable: expected boolean, got &{{"yes"}}',
        ),
        (
            {"kind": None},
            NO_CONFIGURATION.replace("ConfigMap", "") + "no corresponding type for /v1, Kind=",
        ),
    ],
)
async def test_invalid_configurations_are_rejected(apply, changes, message):
    refused = await apply({**config_map(), **changes})
    assert refused.status == 400
    assert refused["message"] == message


async def test_a_configuration_may_be_yaml(apply):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  a: 'x'\n"
    assert (await apply(text))["data"] == {"a": "x"}


async def test_a_configuration_can_have_a_resource_version(ask, apply):
    made = await apply(config_map(a="1"))
    configuration = config_map(a="2")
    configuration["metadata"]["resourceVersion"] = made.metadata["resourceVersion"]
    assert (await apply(configuration)).status == 200
    refused = await apply(configuration | {"data": {"a": "3"}})
    assert refused.status == 409
    assert "the object has been modified" in refused["message"]


async def test_a_dry_run_stores_nothing(ask, apply):
    shown = await apply(config_map(a="1"), query="&dryRun=All")
    assert shown.status == 201
    assert account(shown)
    assert (await ask("GET", DEPLOYED)).status == 404


@pytest.fixture
def replica_set():
    labels = {"app": "lab"}
    return {
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


async def test_applying_replicas_conflicts_with_the_manager_of_the_scale(ask, apply, replica_set):
    path = SETS + "/lab"
    made = await apply(replica_set, "kubectl", path=path)
    assert made.status == 201, made.text
    agent = MERGE | {"user-agent": "kubectl/v1.37"}
    await ask("PATCH", path + "/scale", {"spec": {"replicas": 3}}, agent)
    refused = await apply(replica_set, "kubectl", path=path)
    assert refused["message"] == (
        'Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" '
        "using kubevirt.io/v1: .spec.replicas"
    )
    del replica_set["spec"]["replicas"]
    left = await apply(replica_set, "kubectl", path=path)
    assert left["spec"]["replicas"] == 3


async def test_the_scale_subresource_can_be_applied(ask, apply, replica_set):
    path = SETS + "/lab"
    await apply(replica_set, path=path)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 4}}
    refused = await apply(scale, "scaler", path=path + "/scale")
    assert refused["message"].endswith('conflict with "me": .spec.replicas')
    scaled = await apply(scale, "scaler", path=path + "/scale", force=True)
    assert scaled["spec"] == {"replicas": 4}
    known = account(await ask("GET", path))
    assert known["scaler", "Apply", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in known["me", "Apply", ""]["f:spec"]


async def test_the_status_has_its_own_managed_fields_entry(ask, replica_set):
    await ask("POST", SETS, replica_set)
    status = {"status": {"replicas": 2}}
    patched = await ask("PATCH", f"{SETS}/lab/status?fieldManager=loop", status, MERGE)
    assert account(patched)["loop", "Update", "status"] == {"f:status": {".": {}, "f:replicas": {}}}


async def test_the_status_subresource_can_be_applied(ask, apply, replica_set):
    await apply(replica_set, path=f"{SETS}/lab")
    replica_set["spec"]["replicas"] = 9
    replica_set["status"] = {"replicas": 2}
    applied = await apply(replica_set, "loop", path=f"{SETS}/lab/status")
    assert applied["status"] == {"replicas": 2}
    assert applied["spec"]["replicas"] == 1
    assert account(applied)["loop", "Apply", "status"] == {"f:status": {"f:replicas": {}}}
    replica_set["status"]["replicas"] = 7
    replica_set["spec"]["replicas"] = 1
    applied = await apply(replica_set, path=f"{SETS}/lab")
    assert applied["status"] == {"replicas": 2}
    assert "f:status" not in account(applied)["me", "Apply", ""]


@pytest.mark.parametrize("nothing", [[], [{}]])
async def test_a_client_can_reset_managed_fields(ask, apply, nothing):
    await apply(config_map(a="1"))
    cleared = await ask("PATCH", DEPLOYED, {"metadata": {"managedFields": nothing}}, MERGE)
    assert "managedFields" not in cleared.metadata
    applied = await apply(config_map(a="1", b="1"))
    assert account(applied)["before-first-apply", "Update", ""] == {"f:data": {".": {}, "f:a": {}}}


async def test_an_update_without_managed_fields_keeps_them(ask, apply):
    made = await apply(config_map(a="1"))
    sent = {**config_map(a="1"), "metadata": {"name": "one", "labels": {"x": "y"}}}
    put = await ask("PUT", DEPLOYED + "?fieldManager=you", sent)
    assert account(put)["me", "Apply", ""] == account(made)["me", "Apply", ""]
    assert account(put)["you", "Update", ""] == {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}


async def test_a_client_can_set_managed_fields(ask, apply):
    made = await apply(config_map(a="1"))
    entry = made.metadata["managedFields"][0] | {"manager": "heir"}
    change = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    headers = {"content-type": "application/json-patch+json"}
    assert ("heir", "Apply", "") in account(await ask("PATCH", DEPLOYED, change, headers))
    change[0]["value"] = [entry | {"operation": "Take"}]
    refused = await ask("PATCH", DEPLOYED, change, headers)
    assert refused.status == 422
    assert refused["details"]["causes"][0] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "Take": must be `Apply` or `Update`',
        "field": "metadata.managedFields[0].operation",
    }
    change[0]["value"] = [entry | {"manager": "thief", "fieldsV1": {"x": {}}}]
    assert ("heir", "Apply", "") in account(await ask("PATCH", DEPLOYED, change, headers))


async def test_kubectl_migrates_to_server_side_apply_without_conflicts(ask, apply):
    noted = config_map(a="1")
    note = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"1"}}'
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    noted["metadata"]["annotations"] = {annotation: note}
    await ask("POST", MAPS + "?fieldManager=kubectl-client-side-apply", noted)
    assert (await apply(config_map(a="2"), "other")).status == 409
    applied = await apply(config_map(a="2"), "kubectl")
    assert applied["data"] == {"a": "2"}
    assert applied.metadata["annotations"][annotation] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{},"name":"one","namespace":"default"}}\n'
    )
    await ask("PATCH", DEPLOYED + "?fieldManager=you", {"data": {"a": "3"}}, MERGE)
    assert (await apply(config_map(a="2"), "kubectl")).status == 409


async def test_applying_a_missing_object_needs_the_right_to_create(ask):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "patcher"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert (await ask("POST", f"{roles}/roles", role)).status == 201
    assert (await ask("POST", f"{roles}/rolebindings", binding)).status == 201
    ann = Asker(ask.server, User(name="ann", groups=("system:authenticated",)))
    refused = await ann("PATCH", DEPLOYED + "?fieldManager=ann", config_map(), APPLY)
    assert refused.status == 403
    assert 'User "ann" cannot create resource "configmaps"' in refused["message"]
    await ask("POST", MAPS, config_map())
    assert (await ann("PATCH", DEPLOYED + "?fieldManager=ann", config_map(), APPLY)).status == 200


async def test_the_oldest_of_many_managers_are_merged(ask, monkeypatch):
    monkeypatch.setattr(ask.server.rest, "now", lambda: 1_790_000_000.0)
    await ask("POST", MAPS + "?fieldManager=m0", config_map(a="0"))
    for number in range(1, 13):
        data = {"data": {f"k{number}": "x"}}
        patched = await ask("PATCH", f"{DEPLOYED}?fieldManager=m{number}", data, MERGE)
    known = account(patched)
    assert len(known) == 10
    ancient = known["ancient-changes", "Update", ""]
    # Of the same second, they are old in the order of their names.
    assert set(ancient["f:data"]) == {".", "f:a", "f:k1", "f:k10", "f:k11"}


@pytest.mark.parametrize(
    ("manager", "message"),
    [
        ("m" * 129, "Too long: may not be more than 128 bytes"),
        ("é\x07b", 'Invalid value: "é\x07b": invalid character U+0007 (at position 2)'),
    ],
)
async def test_a_field_manager_must_be_printable(ask, apply, manager, message):
    refused = await ask("POST", f"{MAPS}?fieldManager={quote(manager)}", config_map())
    assert refused.status == 422
    assert refused["message"].endswith(f"fieldManager: {message}")
    made = await apply(config_map(a="1"))
    entry = made.metadata["managedFields"][0] | {"manager": manager, "subresource": "s" * 257}
    change = {"metadata": {"managedFields": [entry]}}
    causes = (await ask("PATCH", DEPLOYED, change, MERGE))["details"]["causes"]
    assert [(cause["field"], cause["message"]) for cause in causes] == [
        ("metadata.managedFields[0].manager", message),
        ("metadata.managedFields[0].subresource", "Too long: may not be more than 256 bytes"),
    ]


async def test_the_manager_from_a_user_agent_is_its_printable_part(ask):
    headers = {"user-agent": f"é\x07{'m' * 200}/1.0 (linux)"}
    made = await ask("POST", MAPS, config_map(), headers)
    assert [each["manager"] for each in made.metadata["managedFields"]] == ["é" + "m" * 126]


async def test_each_version_of_a_kind_has_its_own_managed_fields(ask, apply):
    """An autoscaler that is made in one version and applied in the other."""
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers/one"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    old = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "one"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
    }
    made = await apply(old, path=path.format("v1"))
    assert made.status == 201, made.text
    assert "f:targetCPUUtilizationPercentage" in account(made)["me", "Apply", ""]["f:spec"]
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    new = old | {
        "apiVersion": "autoscaling/v2",
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [metric]},
    }
    refused = await apply(new, "you", path=path.format("v2"))
    assert refused["message"] == (
        'Apply failed with 1 conflict: conflict with "me": .spec.targetCPUUtilizationPercentage'
    )
    taken = await apply(new, path=path.format("v2"))
    assert taken["spec"]["metrics"] == [metric]
    assert taken.metadata["managedFields"][0]["apiVersion"] == "autoscaling/v2"


async def test_a_null_field_is_not_managed(ask, apply, replica_set):
    machine = replica_set["spec"]["template"]["spec"]
    machine["domain"]["devices"]["disks"] = [{"name": "one", "disk": None}]
    machine["volumes"] = [{"name": "one", "emptyDisk": {"capacity": "1Gi"}}]
    await ask("POST", SETS, replica_set)
    assert (await apply(replica_set, path=f"{SETS}/lab")).status == 200


async def test_force_is_for_apply_only(ask):
    await ask("POST", MAPS, config_map())
    refused = await ask("PATCH", DEPLOYED + "?force=true", {}, MERGE)
    assert refused.status == 422
    assert refused["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: '
        "may not be specified for non-apply patch"
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(configurations=st.lists(VALUES, min_size=1, max_size=3), force=st.booleans())
async def test_no_configuration_makes_the_server_fail(apply, configurations, force):
    path = "/api/v1/namespaces/default/pods/one"
    for number, value in enumerate(configurations):
        for manager in ("me", "you"):
            sent = {"apiVersion": "v1", "kind": "Pod", "spec": POD | {"containers": [value]}}
            if number % 2:
                sent = value | {"apiVersion": "v1"} if isinstance(value, dict) else value
            answer = await apply(sent, manager, path=path, force=force)
            assert answer.status < 500, answer.text
