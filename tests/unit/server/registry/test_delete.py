"""Tests of deletion: at once, gracefully, with finalizers, of collections."""

import pytest
from tests.unit.server.conftest import MAPS, PODS, SETS

from corral.api.kinds.core.pod import POD
from corral.api.object import Key
from corral.api.time import parse_rfc3339
from corral.server.registry.rest import is_released
from corral.server.request.call import storage
from corral.store import Record

SPACES = "/api/v1/namespaces"


async def test_an_object_without_finalizers_is_gone_at_once(ask):
    made = await ask.create(MAPS, "a")
    answer = await ask("DELETE", f"{MAPS}/a", {"propagationPolicy": "Background"})
    assert answer.status == 200
    assert answer["status"] == "Success"
    assert answer["details"] == {
        "name": "a",
        "kind": "configmaps",
        "uid": made["metadata"]["uid"],
    }
    assert (await ask("GET", f"{MAPS}/a")).status == 404
    assert (await ask("DELETE", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(
    ("path", "about", "kind"),
    [
        ("/api/v1/namespaces/default/serviceaccounts", {}, "ServiceAccount"),
        ("/api/v1/namespaces/default/resourcequotas", {"spec": {}}, "ResourceQuota"),
        ("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "p"}, "StorageClass"),
        ("/api/v1/namespaces/default/secrets", {}, "Status"),
        (MAPS, {}, "Status"),
    ],
)
async def test_a_deletion_returns_the_object_or_a_status(ask, path, about, kind):
    await ask("POST", path, {"metadata": {"name": "a"}} | about)
    gone = await ask("DELETE", f"{path}/a")
    assert (gone.status, gone["kind"]) == (200, kind)
    named = gone["details"] if kind == "Status" else gone.metadata
    assert named["name"] == "a"
    assert (await ask("GET", f"{path}/a")).status == 404


async def test_marking_an_object_for_deletion_decodes_it_once(ask, monkeypatch):
    await ask("POST", MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/held"]}})
    counted, read = [], Record.document
    monkeypatch.setattr(Record, "document", lambda one: counted.append(one) or read(one))
    for most in (1, 2):  # the second time what was decided is compared
        counted.clear()
        assert (await ask("DELETE", f"{MAPS}/a")).status == 200
        assert len(counted) <= most


async def test_failed_preconditions_name_the_difference(ask, replica_set):
    made = await ask("POST", SETS, replica_set)
    wrong = {"preconditions": {"resourceVersion": "1"}}
    refused = await ask("DELETE", f"{SETS}/web", wrong)
    assert (refused.status, refused["reason"]) == (409, "Conflict")
    revision = made.metadata["resourceVersion"]
    assert refused["message"] == (
        'Operation cannot be fulfilled on VirtualMachineInstanceReplicaSet.kubevirt.io "web": the '
        f"ResourceVersion in the precondition (1) does not match the ResourceVersion in record "
        f"({revision}). The object might have been modified"
    )
    assert refused["details"]["kind"] == "VirtualMachineInstanceReplicaSet"
    other = await ask("DELETE", f"{SETS}/web", {"preconditions": {"uid": "other"}})
    assert other.status == 409
    assert other["message"].endswith("The object might have been deleted and then recreated")
    right = {"preconditions": {"uid": made.metadata["uid"], "resourceVersion": revision}}
    assert (await ask("DELETE", f"{SETS}/web", right)).status == 200


async def test_an_object_is_deleted_with_its_last_finalizer(ask, replica_set):
    replica_set["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    await ask("POST", SETS, replica_set)
    held = await ask("DELETE", f"{SETS}/web")
    assert held["kind"] == "VirtualMachineInstanceReplicaSet"
    assert held.metadata["deletionTimestamp"]
    assert held.metadata["deletionGracePeriodSeconds"] == 0
    again = await ask("DELETE", f"{SETS}/web")
    assert again.metadata["resourceVersion"] == held.metadata["resourceVersion"]
    one = {"metadata": {"finalizers": ["example.com/b"]}}
    assert (await ask.patch(f"{SETS}/web", one)).status == 200
    more = {"metadata": {"finalizers": ["example.com/b", "example.com/c"]}}
    refused = await ask.patch(f"{SETS}/web", more)
    assert refused.status == 422
    assert 'found new finalizers []string{"example.com/c"}' in refused["message"]
    assert (await ask.patch(f"{SETS}/web", {"metadata": {"finalizers": None}})).status == 200
    assert (await ask("GET", f"{SETS}/web")).status == 404


async def test_the_propagation_policy_becomes_a_finalizer(ask, replica_set):
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        replica_set["metadata"]["name"] = policy.lower()
        await ask("POST", SETS, replica_set)
        held = await ask("DELETE", f"{SETS}/{policy.lower()}", {"propagationPolicy": policy})
        assert held.metadata["finalizers"] == [finalizer]
        assert held.metadata["generation"] == 2
    gone = await ask("DELETE", f"{SETS}/orphan", {"propagationPolicy": "Background"})
    assert gone["status"] == "Success"
    refused = await ask("DELETE", f"{SETS}/foreground", {"propagationPolicy": "Sideways"})
    assert refused.status == 422
    assert 'propagationPolicy: Unsupported value: "Sideways"' in refused["message"]


async def test_a_running_pod_gets_its_grace_period(ask, pod, monkeypatch):
    monkeypatch.setattr(ask.server.rest, "now", lambda: 1_790_000_000.0)
    await ask("POST", PODS, pod)
    held = await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": 30})
    assert held["kind"] == "Pod"
    assert held.metadata["deletionGracePeriodSeconds"] == 30
    begun = parse_rfc3339(held.metadata["creationTimestamp"])
    until = parse_rfc3339(held.metadata["deletionTimestamp"])
    assert (until - begun).total_seconds() == 30
    longer = await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": 60})
    assert longer.metadata["deletionTimestamp"] == held.metadata["deletionTimestamp"]
    shorter = await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": 1})
    assert shorter.metadata["deletionGracePeriodSeconds"] == 1
    gone = await ask("DELETE", f"{PODS}/pod?gracePeriodSeconds=0")
    assert gone["kind"] == "Pod"
    assert (await ask("GET", f"{PODS}/pod")).status == 404


async def test_a_pod_with_a_grace_period_outlives_its_finalizers(ask, pod):
    pod["metadata"]["finalizers"] = ["example.com/a"]
    await ask("POST", PODS, pod)
    await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": 30})
    await ask.patch(f"{PODS}/pod", {"metadata": {"finalizers": []}})
    assert (await ask("GET", f"{PODS}/pod")).status == 200
    await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": 0})
    assert (await ask("GET", f"{PODS}/pod")).status == 404


@pytest.mark.parametrize("seconds", [2**31, 200_000_000_000, 900_000_000_000_000])
async def test_a_grace_period_beyond_the_calendar_is_rejected(ask, pod, seconds):
    await ask("POST", PODS, pod)
    for refused in (
        await ask("DELETE", f"{PODS}/pod?gracePeriodSeconds={seconds}"),
        await ask("DELETE", f"{PODS}/pod", {"gracePeriodSeconds": seconds}),
    ):
        assert refused.status == 422
        assert refused["message"] == (
            'DeleteOptions.meta.k8s.io "" is invalid: gracePeriodSeconds: Invalid value: '
            f"{seconds}: must be less than or equal to 2147483647"
        )
    assert "deletionTimestamp" not in (await ask("GET", f"{PODS}/pod")).metadata
    longest = await ask("DELETE", f"{PODS}/pod?gracePeriodSeconds={2**31 - 1}")
    assert longest.metadata["deletionGracePeriodSeconds"] == 2**31 - 1


async def test_a_stored_pod_with_an_excessive_grace_period_can_be_deleted(ask, pod):
    await ask("POST", PODS, pod)
    stored = ask.server.store.latest(storage(POD), Key("default", "pod")).document()
    stored["spec"]["terminationGracePeriodSeconds"] = 900_000_000_000_000
    await ask.server.store.write(storage(POD), Key("default", "pod"), stored)
    held = await ask("DELETE", f"{PODS}/pod")
    assert held.metadata["deletionGracePeriodSeconds"] == 2**31 - 1


async def test_an_unscheduled_pod_is_gone_at_once(ask, pod):
    del pod["spec"]["nodeName"]
    await ask("POST", PODS, pod)
    assert (await ask("DELETE", f"{PODS}/pod")).status == 200
    assert (await ask("GET", f"{PODS}/pod")).status == 404


async def test_a_namespace_waits_until_it_is_empty(ask):
    await ask("POST", SPACES, {"metadata": {"name": "lab"}})
    held = await ask("DELETE", f"{SPACES}/lab")
    assert held["kind"] == "Namespace"
    assert held["status"]["phase"] == "Terminating"
    again = await ask("DELETE", f"{SPACES}/lab?propagationPolicy=Orphan")
    assert (again.status, again.document) == (200, held.document)
    taken = await ask("POST", SPACES, {"metadata": {"name": "lab"}})
    assert taken["message"] == 'object is being deleted: namespaces "lab" already exists'
    empty = {"metadata": {"name": "lab"}, "spec": {"finalizers": []}}
    assert (await ask("PUT", f"{SPACES}/lab/finalize", empty)).status == 200
    assert (await ask("GET", f"{SPACES}/lab")).status == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_cannot_be_deleted(ask, name):
    await ask("POST", SPACES, {"metadata": {"name": name}})
    for query in ("", "?dryRun=All"):
        refused = await ask("DELETE", f"{SPACES}/{name}{query}")
        assert (refused.status, refused["reason"]) == (403, "Forbidden")
        assert refused["message"] == (
            f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )
    assert (await ask("GET", f"{SPACES}/{name}"))["status"]["phase"] == "Active"


async def test_only_kubernetes_namespaces_are_namespaces():
    metadata = {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    own = {"kind": "Namespace", "metadata": metadata, "spec": {"finalizers": ["a"]}}
    assert is_released({"apiVersion": "example.com/v1"} | own)
    assert not is_released({"apiVersion": "v1"} | own)


async def test_a_dry_run_deletes_nothing(ask, replica_set):
    await ask.create(MAPS, "a")
    assert (await ask("DELETE", f"{MAPS}/a", {"dryRun": ["All"]}))["status"] == "Success"
    await ask("POST", SETS, replica_set)
    held = await ask("DELETE", f"{SETS}/web?dryRun=All", {"propagationPolicy": "Orphan"})
    assert held.metadata["finalizers"] == ["orphan"]
    assert (await ask("GET", f"{MAPS}/a")).status == 200
    assert "finalizers" not in (await ask("GET", f"{SETS}/web")).metadata


async def test_a_collection_is_deleted_by_selector(ask):
    for name, app in (("a", "web"), ("b", "web"), ("c", "db")):
        await ask.create(MAPS, name, labels={"app": app})
    gone = await ask("DELETE", f"{MAPS}?labelSelector=app%3Dweb")
    assert gone.names == ["a", "b"]
    assert (await ask("GET", MAPS)).names == ["c"]


async def test_deletecollection_keeps_to_the_limit(ask):
    for name in "abcd":
        await ask.create(MAPS, name)
    first = await ask("DELETE", f"{MAPS}?limit=1")
    assert (first.names, first.metadata["remainingItemCount"]) == (["a"], 3)
    token = first.metadata["continue"]
    assert (await ask("DELETE", f"{MAPS}?limit=2&continue={token}")).names == ["b", "c"]
    assert (await ask("GET", MAPS)).names == ["d"]
    assert (await ask("DELETE", f"{MAPS}?limit=few")).status == 400
    assert (await ask("GET", MAPS)).names == ["d"]


async def test_terminating_objects_of_a_collection_are_not_written_again(ask):
    await ask("POST", MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/a"]}})
    assert (await ask("DELETE", MAPS)).status == 200
    before = ask.server.store.revision
    assert (await ask("DELETE", MAPS)).names == ["a"]
    assert ask.server.store.revision == before


async def test_nothing_of_a_collection_is_deleted_before_all_is_validated(ask, monkeypatch):
    for name in "abc":
        await ask.create(MAPS, name)
    store, seen = ask.server.store, []

    async def dismiss(call, _):
        keys = [Key("default", name) for name in "abc"]
        seen.append([store.latest(storage(call.kind), key) is not None for key in keys])
        return True

    monkeypatch.setattr(ask.server.reviewers, "admit_deletion", dismiss)
    assert (await ask("DELETE", MAPS)).status == 200
    assert seen == [[True] * 3] * 3
    assert (await ask("GET", MAPS)).names == []


async def test_a_rejected_object_does_not_keep_the_others_of_a_collection(ask):
    for name in "abc":
        made = await ask.create(MAPS, name)
        if name == "b":
            uid = made["metadata"]["uid"]
    refused = await ask("DELETE", MAPS, {"preconditions": {"uid": uid}})
    assert refused.status == 409
    assert (await ask("GET", MAPS)).names == ["a", "c"]


async def test_namespaces_have_no_deletecollection(ask):
    assert (await ask("DELETE", SPACES)).status == 405
    assert "deletionTimestamp" not in (await ask("GET", f"{SPACES}/default")).metadata


async def test_invalid_delete_options_are_rejected(ask):
    await ask.create(MAPS, "a")
    assert (await ask("DELETE", f"{MAPS}/a", b"{")).status == 400
    assert (await ask("DELETE", f"{MAPS}/a", {"gracePeriodSeconds": "x"})).status == 400
    assert (await ask("DELETE", f"{MAPS}/a?gracePeriodSeconds=-1")).status == 400
    assert (await ask("GET", f"{MAPS}/a")).status == 200
