"""What KubeVirt's replica sets do, seen through the API."""

import re

import pytest
from tests.conformance.api import conditions, names, refused, until
from tests.conformance.manifests import config_map, core, machine, machines, replica_set, sets

pytestmark = pytest.mark.conformance

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
COMPONENT = "virtualmachineinstancereplicaset-controller"
KUBEVIRT_CONTROLLER = {
    "Impersonate-User": "system:serviceaccount:kubevirt:kubevirt-controller",
    "Content-Type": "application/merge-patch+json",
}


class Web:
    """A replica set ``web`` in a namespace of its own."""

    def __init__(self, api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.path = sets(namespace, "web")

    def create(self, replicas: int, **form) -> list[dict]:
        self.api.create(sets(self.namespace), replica_set("web", replicas, **form))
        return self.settled(replicas)

    @property
    def document(self) -> dict:
        return self.api.get_document(self.path)

    @property
    def status(self) -> dict:
        return self.document.get("status", {})

    def machines(self) -> list[dict]:
        return self.api.items(machines(self.namespace))

    def machine(self, name: str) -> dict:
        return self.api.get_document(machines(self.namespace, name))

    def is_settled(self, replicas: int) -> bool:
        status = self.status
        counts = (status.get("replicas", 0), status.get("readyReplicas", 0))
        return counts == (replicas, replicas) and len(self.machines()) == replicas

    def settled(self, replicas: int) -> list[dict]:
        """Wait until there are so many machines, all ready; answers them."""
        until(f"{replicas} machines are ready", lambda: self.is_settled(replicas))
        return self.machines()

    def scale(self, replicas: int) -> None:
        self.api.change(f"{self.path}/scale", {"spec": {"replicas": replicas}})

    def change(self, **spec) -> None:
        self.api.change(self.path, {"spec": spec})

    def change_machine(self, name: str, **metadata) -> None:
        self.api.change(machines(self.namespace, name), {"metadata": metadata})

    def events(self, reason: str) -> list[dict]:
        selector = f"involvedObject.name=web,reason={reason}"
        return self.api.items(core("events", self.namespace), fieldSelector=selector)

    def recorded(self, reason: str, count: int = 1) -> list[dict]:
        """Wait for so many events of a reason, and return them."""

        def enough() -> list[dict]:
            found = self.events(reason)
            return found if sum(one.get("count", 1) for one in found) >= count else []

        return until(f"{count} times {reason}", enough)


@pytest.fixture
def web(api, namespace) -> Web:
    return Web(api, namespace)


def uids(items: list[dict]) -> set[str]:
    return {item["metadata"]["uid"] for item in items}


def test_vmis_are_named_after_the_set_without_a_dash(web):
    made = web.create(3)
    assert all(re.fullmatch("web[a-z0-9]{5}", name) for name in names(made))
    owner = web.document["metadata"]
    for one in made:
        metadata = one["metadata"]
        assert metadata["generateName"] == "web"
        assert {k: v for k, v in metadata["labels"].items() if "kubevirt.io/" not in k} == {
            "app": "web"
        }
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceReplicaSet",
                "name": "web",
                "uid": owner["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    assert len({one["spec"]["domain"]["firmware"]["uuid"] for one in made}) == 3


def test_the_name_of_the_template_is_the_prefix(web):
    (made,) = web.create(1, template_name="test")
    assert re.fullmatch("test[a-z0-9]{5}", made["metadata"]["name"])


def test_replicas_default_to_one(api, web, namespace):
    document = replica_set("web", 1)
    del document["spec"]["replicas"]
    api.create(sets(namespace), document)
    web.settled(1)
    assert "replicas" not in web.document["spec"]


def test_the_status_has_replicas_and_selector(api, web):
    web.create(2)
    assert web.status == {"replicas": 2, "readyReplicas": 2, "labelSelector": "app=web"}
    scale = api.get_document(f"{web.path}/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": "app=web"}


def test_every_created_vmi_has_an_event(web):
    made = web.create(3)
    created = web.recorded("SuccessfulCreate", 3)
    assert {one["message"] for one in created} == {
        f"Created virtual machine: {name}" for name in names(made)
    }
    for one in created:
        assert one["type"] == "Normal"
        assert one["source"]["component"] == COMPONENT
        about = one["involvedObject"]
        assert (about["kind"], about["apiVersion"]) == (
            "VirtualMachineInstanceReplicaSet", "kubevirt.io/v1",
        )  # fmt: skip
        assert about["uid"] == web.document["metadata"]["uid"]


def test_scaling_to_many_and_to_zero(web):
    web.create(60)
    web.scale(0)
    web.settled(0)


def test_every_deleted_vmi_has_an_event_with_its_name(web):
    (made,) = web.create(1)
    web.scale(0)
    (event,) = web.recorded("SuccessfulDelete")
    assert event["type"] == "Normal"
    assert event["message"] == (
        "Stopped the virtual machine by deleting the virtual machine instance "
        + made["metadata"]["name"]
    )


def test_a_deleted_vmi_is_replaced(api, web, namespace):
    before = web.create(2)
    victim = before[0]["metadata"]
    api.remove(machines(namespace, victim["name"]))
    after = until(
        "another one is there",
        lambda: web.is_settled(2) and victim["uid"] not in uids(web.machines()) and web.machines(),
    )
    assert len(uids(before) & uids(after)) == 1


def test_a_finished_vmi_is_deleted_and_replaced(api, web, namespace):
    (before,) = web.create(1)
    path = machines(namespace, before["metadata"]["name"])
    finished = '{"status":{"phase":"Succeeded"}}'
    binding = {
        "metadata": {"name": f"controller-{namespace}"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": KUBEVIRT_CONTROLLER["Impersonate-User"]}],
    }
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    answer = api.patch(path, content=finished, headers=KUBEVIRT_CONTROLLER)
    assert answer.status_code == 200, answer.text
    until("another one is there", lambda: uids(web.machines()) - uids([before]))
    web.settled(1)
    (event, *_) = web.recorded("SuccessfulDelete")
    assert event["message"] == f"Deleted finished virtual machine: {before['metadata']['name']}"


def test_evicting_a_pod_deletes_its_vmi(api, web, namespace):
    before = web.create(2)
    (pod,) = [
        one
        for one in api.items(core("pods", namespace))
        if one["metadata"]["ownerReferences"][0]["name"] == before[0]["metadata"]["name"]
    ]
    api.remove(core("pods", namespace, pod["metadata"]["name"]))
    until("another one is there", lambda: uids(web.machines()) - uids(before))
    web.settled(2)
    assert len(uids(before) & uids(web.machines())) == 1


def test_matching_orphans_are_adopted(api, web, namespace):
    api.create(machines(namespace), machine("orphan", {"app": "web"}))
    api.create(machines(namespace), machine("stranger", {"app": "other"}))
    api.create(sets(namespace), replica_set("web", 2))
    until("two are counted", lambda: web.status.get("readyReplicas") == 2)
    assert len(web.machines()) == 3
    adopted = web.machine("orphan")["metadata"]
    assert [one["uid"] for one in adopted["ownerReferences"]] == [web.document["metadata"]["uid"]]
    assert adopted["ownerReferences"][0]["controller"] is True
    assert not web.machine("stranger")["metadata"].get("ownerReferences")


def test_adopting_one_too_many_deletes_one(api, web, namespace):
    web.create(2)
    made = api.create(machines(namespace), machine("orphan", {"app": "web"}))
    until("it is adopted or gone", lambda: not _is_orphan(web, made))
    web.settled(2)


def _is_orphan(web: Web, made: dict) -> bool:
    return any(
        one["metadata"]["uid"] == made["metadata"]["uid"]
        and not one["metadata"].get("ownerReferences")
        for one in web.machines()
    )


def test_vmis_of_other_controllers_are_left_alone(api, web, namespace):
    owner = api.create(core("configmaps", namespace), config_map("owner"))["metadata"]
    document = machine("theirs", {"app": "web"})
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"],
        "controller": True,
    }  # fmt: skip
    document["metadata"]["ownerReferences"] = [reference]
    api.create(machines(namespace), document)
    api.create(sets(namespace), replica_set("web", 1))
    until("one is counted", lambda: web.status.get("readyReplicas") == 1)
    assert len(web.machines()) == 2
    assert web.machine("theirs")["metadata"]["ownerReferences"] == [reference]


def test_a_vmi_that_stops_matching_is_released(web):
    (before,) = web.create(1)
    name = before["metadata"]["name"]
    web.change_machine(name, labels={"app": "debug"})
    until("it is released", lambda: not web.machine(name)["metadata"].get("ownerReferences"))
    until("it is replaced", lambda: len(web.machines()) == 2)
    until("the other is counted", lambda: web.status.get("readyReplicas") == 1)
    released = web.machine(name)
    assert released["status"]["phase"] == "Running"
    assert released["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_paused_set_only_updates_its_status(api, web, namespace):
    made = web.create(2)
    web.change(paused=True)
    paused = until("it is paused", lambda: conditions(web.document).get("ReplicaPaused"))
    assert (paused["status"], paused["reason"], paused["message"]) == (
        "True", "Paused", "Controller got paused",
    )  # fmt: skip
    web.recorded("SuccessfulPaused")
    web.scale(3)
    api.remove(machines(namespace, made[0]["metadata"]["name"]))
    until("one less is counted", lambda: web.status.get("replicas") == 1)
    assert len(uids(web.machines()) - uids(made)) == 0
    web.change(paused=False)
    web.settled(3)
    assert "ReplicaPaused" not in conditions(web.document)
    assert web.recorded("SuccessfulResumed")[0]["message"] == "Resumed"


def test_a_rejected_vmi_is_a_failure_condition_until_it_is_accepted(api, web, namespace):
    document = replica_set("web", 1)
    del document["spec"]["template"]["spec"]["domain"]["resources"]
    api.create(sets(namespace), document)
    failure = until("it fails", lambda: conditions(web.document).get("ReplicaFailure"))
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "memory" in failure["message"]
    (event, *_) = web.recorded("FailedCreate")
    assert event["type"] == "Warning"
    assert event["message"].startswith("Error creating virtual machine instance: ")
    resources = {"requests": {"memory": "64M"}}
    web.change(template={"spec": {"domain": {"resources": resources}}})
    web.settled(1)
    assert "ReplicaFailure" not in conditions(web.document)


def test_vmis_with_the_lowest_deletion_cost_are_deleted_first(web):
    made = web.create(4)
    cheap, dear = made[0]["metadata"], made[-1]["metadata"]
    web.change_machine(cheap["name"], annotations={DELETION_COST: "-10"})
    for one in made[1:]:
        web.change_machine(one["metadata"]["name"], annotations={DELETION_COST: "5"})
    web.change_machine(dear["name"], annotations={DELETION_COST: "100"})
    web.scale(3)
    assert uids(web.settled(3)) == uids(made) - {cheap["uid"]}
    web.scale(1)
    assert uids(web.settled(1)) == {dear["uid"]}


def test_of_equal_deletion_cost_the_newest_are_deleted_first(web):
    before = web.create(1)
    until("a second has passed", lambda: _age_differs(web, before))
    web.scale(3)
    web.settled(3)
    web.scale(1)
    assert uids(web.settled(1)) == uids(before)


def _age_differs(web: Web, before: list[dict]) -> bool:
    """Creation times count seconds: a probe shows when the next one has begun."""
    probe = web.api.create(core("configmaps", web.namespace), config_map(), dryRun="All")
    return probe["metadata"]["creationTimestamp"] > before[0]["metadata"]["creationTimestamp"]


def test_a_changed_template_applies_to_new_vmis(web):
    (old,) = web.create(1)
    web.change(template={"metadata": {"labels": {"app": "web", "version": "2"}}})
    web.scale(2)
    web.settled(2)
    assert "version" not in web.machine(old["metadata"]["name"])["metadata"]["labels"]
    (new,) = [one for one in web.machines() if one["metadata"]["uid"] != old["metadata"]["uid"]]
    assert new["metadata"]["labels"]["version"] == "2"


def test_a_changed_selector_releases_and_creates_vmis(web):
    (old,) = web.create(1)
    web.change(
        selector={"matchLabels": {"app": "new"}}, template={"metadata": {"labels": {"app": "new"}}}
    )
    until("the old one is free", lambda: not _owners(web, old["metadata"]["name"]))
    until("another is made", lambda: len(web.machines()) == 2)
    until("the status follows", lambda: web.status.get("labelSelector") == "app=new")


def _owners(web: Web, name: str) -> list[dict]:
    return web.machine(name)["metadata"].get("ownerReferences", [])


def test_background_deletion_deletes_the_vmis(api, web):
    web.create(2)
    api.remove(web.path, {"propagationPolicy": "Background"})
    assert api.get(web.path).status_code == 404
    until("all are gone", lambda: not web.machines())


def test_foreground_deletion_waits_for_the_vmis(api, web, namespace):
    web.create(2)
    with api.watch(sets(namespace), resourceVersion="0") as seen:
        going = api.remove(web.path, {"propagationPolicy": "Foreground"})
        assert going["metadata"]["deletionTimestamp"]
        assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
        next(event for event in seen if event["type"] == "DELETED")
    assert web.machines() == []


def test_orphans_run_on_and_are_adopted_again(api, web, namespace):
    made = web.create(2)
    api.remove(web.path, {"propagationPolicy": "Orphan"})
    until("the set is gone", lambda: api.get(web.path).status_code == 404)
    assert uids(web.machines()) == uids(made)
    assert all(not one["metadata"].get("ownerReferences") for one in web.machines())
    assert uids(web.create(2)) == uids(made)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"selector": {"matchLabels": {"app": "x"}}}, "spec.selector",
         "selector does not match labels."),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Maybe"}]}}, "spec.selector",
         ""),
    ],
)  # fmt: skip
def test_an_invalid_selector_is_rejected(api, namespace, change, field, message):
    document = replica_set("web", 1)
    document["spec"] |= change
    status = refused(api.post(sets(namespace), json=document), 422, "Invalid")
    assert field in [cause["field"].split(".match")[0] for cause in status["details"]["causes"]]
    assert message in status["message"]


def test_a_disk_without_its_volume_is_rejected_with_its_path(api, namespace):
    document = replica_set("web", 1)
    document["spec"]["template"]["spec"]["volumes"][0]["name"] = "other"
    status = refused(api.post(sets(namespace), json=document), 422, "Invalid")
    path = "spec.template.spec.domain.devices.disks[0].name"
    assert path in [cause["field"] for cause in status["details"]["causes"]]
    assert "disks[0].Name 'disk' not found." in status["message"]


def test_unknown_fields_are_rejected_warned_of_or_dropped_by_field_validation(api, namespace):
    document = replica_set("web", 1)
    document["spec"]["template"]["spec"]["domain"]["nosuch"] = 1
    for validation, code in (("Strict", 400), ("Warn", 201), ("Ignore", 201)):
        query = {"fieldValidation": validation, "dryRun": "All"}
        answer = api.post(sets(namespace), json=document, params=query)
        assert answer.status_code == code
        assert (
            "nosuch" not in answer.json().get("spec", {})["template"]["spec"]["domain"]
            if (code == 201)
            else "nosuch" in answer.json()["message"]
        )
        warnings = " ".join(answer.headers.get_list("warning"))
        assert ("nosuch" in warnings) == (validation == "Warn")


def test_fields_without_effect_are_named_in_a_warning(api, namespace):
    document = machine("x", dnsPolicy="ClusterFirst")
    document["spec"]["domain"]["devices"]["blockMultiQueue"] = True
    answer = api.post(machines(namespace), json=document, params={"dryRun": "All"})
    assert answer.status_code == 201, answer.text
    warnings = " ".join(answer.headers.get_list("warning"))
    assert "spec.domain.devices.blockMultiQueue" in warnings


def test_phase_transitions_of_a_vmi_are_recorded(api, web):
    (made,) = web.create(1)
    machine_now = web.machine(made["metadata"]["name"])
    status = machine_now["status"]
    assert [one["phase"] for one in status["phaseTransitionTimestamps"]] == [
        "Pending", "Scheduling", "Scheduled", "Running",
    ]  # fmt: skip
    assert machine_now["metadata"]["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert machine_now["metadata"]["labels"]["kubevirt.io/nodeName"] == status["nodeName"]
    (pod,) = api.items(core("pods", web.namespace))
    assert pod["metadata"]["uid"] in status["activePods"]
    labels = pod["metadata"]["labels"]
    assert labels["kubevirt.io"] == "virt-launcher"
    assert labels["kubevirt.io/created-by"] == machine_now["metadata"]["uid"]
    assert pod["metadata"]["annotations"]["kubevirt.io/domain"] == made["metadata"]["name"]
    assert re.fullmatch(
        f"virt-launcher-{made['metadata']['name']}-[a-z0-9]{{5}}", pod["metadata"]["name"]
    )
