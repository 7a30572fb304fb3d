"""DataVolumes: the claim that is made of each, and what is said of it, step by step."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.meta_v1 import OwnerReference
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import ADOPT_CLAIM, DataVolume
from corral.api.kinds.cdi.permitted_clones import PERMITTED
from corral.controllers.datavolume.plan import Observed, plan
from corral.controllers.datavolume.status import find

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
HTTP = {"http": {"url": "http://images.example/disk.img"}}
CLONE = {"pvc": {"name": "golden", "namespace": "images"}}
STORAGE = {"resources": {"requests": {"storage": "1Gi"}}}
CORRAL = {
    "metadata": {
        "name": "corral",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "corral.dev/directory",
}


def volume(source=None, *, status=None, annotations=None, **spec) -> DataVolume:
    document = {
        "metadata": {
            "name": "disk",
            "namespace": "default",
            "uid": "dv-1",
            "labels": {"team": "blue"},
            "annotations": annotations or {},
        },
        "spec": {"storage": STORAGE} | spec,
        "status": status or {},
    }
    if "pvc" in spec:
        del document["spec"]["storage"]
    if source is not None:
        document["spec"]["source"] = source
    return msgspec.convert(document, DataVolume)


def claim(
    phase="Bound",
    *,
    owner="dv-1",
    going=False,
    size="1Gi",
    name="disk",
    namespace="default",
    **annotations,
) -> PersistentVolumeClaim:
    names = {key: getattr(population, key) for key in annotations}
    metadata = {
        "name": name,
        "namespace": namespace,
        "annotations": {names[key]: value for key, value in annotations.items()},
    }
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "DataVolume", "name": "disk", "uid": owner}
            | {"controller": True}
        ]
    if going:
        metadata["deletionTimestamp"] = NOW
    document = {
        "metadata": metadata,
        "spec": {"storageClassName": "corral", "resources": {"requests": {"storage": size}}},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PersistentVolumeClaim)


def decide(
    of, *, now=NOW, claim=None, source_claim=None, reference=None, binding="Immediate", classes=1
):
    corral = msgspec.convert(CORRAL | {"volumeBindingMode": binding}, StorageClass)
    return plan(
        of,
        Observed(
            claim=claim,
            reference=reference,
            source_claim=source_claim,
            classes=[corral] * classes,
            now=now,
        ),
    )


def events_of(decided) -> list[tuple[str, ...]]:
    return [tuple(event) for event in decided.events]


def conditions(status) -> dict[str, tuple[str, str, str]]:
    return {each.type: (each.status, each.reason, each.message) for each in status.conditions}


# --------------------------------------------------------------------- claim


def test_the_claim_has_the_name_labels_and_owner_of_cdi():
    created = decide(volume(HTTP, annotations={"note": "x", population.PHASE: "Succeeded"})).create
    metadata = created["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("disk", "default")
    assert metadata["labels"] == {
        "app": "containerized-data-importer",
        "app.kubernetes.io/component": "storage",
        "app.kubernetes.io/managed-by": "cdi-controller",
        "alerts.k8s.io/KubePersistentVolumeFillingUp": "disabled",
        "team": "blue",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "name": "disk",
            "uid": "dv-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    annotations = metadata["annotations"]
    assert annotations["note"] == "x"
    assert annotations[population.RESTARTS] == "0"
    assert population.PHASE not in annotations, "nobody fills a claim by saying that it is filled"


def test_the_claim_has_the_annotation_to_populate_it():
    created = decide(volume(HTTP, preallocation=True)).create
    request = population.populate_request(msgspec.convert(created, PersistentVolumeClaim))
    assert request.source.http.url == "http://images.example/disk.img"
    assert (request.content_type, request.preallocation) == ("kubevirt", True)


def test_a_claim_for_an_upload_has_the_annotations_of_virtctl():
    annotations = decide(volume({"upload": {}})).create["metadata"]["annotations"]
    assert annotations[population.UPLOAD_TARGET] == ""


def test_storage_fields_default_from_the_class():
    assert decide(volume(HTTP)).create["spec"] == STORAGE | {"accessModes": ["ReadWriteOnce"]}


def test_a_complete_claim_spec_is_used_as_it_is():
    exact = {
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "other",
    }
    created = decide(volume(HTTP, pvc=exact)).create
    assert created["spec"] == exact
    assert "alerts.k8s.io/KubePersistentVolumeFillingUp" not in created["metadata"]["labels"]


@pytest.mark.parametrize(
    ("storage", "classes", "why"),
    [
        (STORAGE | {"storageClassName": "gone"}, 1, 'storage class "gone" was not found'),
        (STORAGE, 0, "there is no default class"),
    ],
)
def test_a_claim_waits_for_its_class(storage, classes, why):
    decided = decide(volume(HTTP, storage=storage), classes=classes)
    assert decided.create is None
    assert decided.status.phase == "Pending"
    ((kind, reason, message),) = events_of(decided)
    assert (kind, reason) == ("Warning", "ErrClaimNotValid")
    assert message.endswith(why)


# --------------------------------------------------------------------- clone


def test_a_clone_has_the_size_of_its_source_by_default():
    source_claim = claim(owner="", size="3Gi", name="golden", namespace="images")
    created = decide(volume(CLONE, storage={}), source_claim=source_claim).create
    assert created["spec"]["resources"] == {"requests": {"storage": "3Gi"}}


def test_a_clone_of_a_missing_source_waits_and_reports_it_once():
    first = decide(volume(CLONE))
    assert first.create is None
    assert events_of(first) == [
        ("Warning", "CloneWithoutSource", "The source pvc golden doesn't exist")
    ]
    again = decide(volume(CLONE, status=msgspec.to_builtins(first.status)), now=LATER)
    assert (again.status, events_of(again)) == (first.status, [])


def test_the_next_reason_to_wait_is_reported_once_the_first_is_gone():
    first = decide(volume(CLONE))
    source_claim = claim(owner="", size="3Gi", name="golden", namespace="images")
    then = volume(CLONE, status=msgspec.to_builtins(first.status))
    assert [reason for _, reason, _ in events_of(decide(then, source_claim=source_claim))] == [
        "CloneValidationFailed"
    ]


def test_a_clone_smaller_than_its_source_is_rejected():
    source_claim = claim(owner="", size="3Gi", name="golden", namespace="images")
    decided = decide(volume(CLONE), source_claim=source_claim)
    ((_, reason, message),) = events_of(decided)
    assert (decided.create, reason) == (None, "CloneValidationFailed")
    assert "target resources requests storage size is smaller than the source" in message


def test_a_data_source_resolves_to_its_claim():
    reference = msgspec.convert(
        {
            "metadata": {"name": "fedora", "namespace": "images"},
            "spec": {"source": {"pvc": {"name": "golden"}}},
        },
        DataSource,
    )
    named = {"kind": "DataSource", "name": "fedora", "namespace": "images"}
    allowed = {PERMITTED: '{"images/fedora":"images/golden"}'}
    of = volume(sourceRef=named, storage={}, annotations=allowed)
    source_claim = claim(owner="", size="3Gi", name="golden", namespace="images")
    created = decide(of, reference=reference, source_claim=source_claim).create
    request = population.populate_request(msgspec.convert(created, PersistentVolumeClaim))
    assert (request.source.pvc.namespace, request.source.pvc.name) == ("images", "golden")
    assert events_of(decide(of)) == [("Warning", "NotFound", "DataSource images/fedora not found")]


@pytest.mark.parametrize(
    ("allowed", "is_made"),
    [
        ('{"default/mine":"images/golden"}', True),
        ('{"default/mine":"images/*"}', True),
        ('{"default/mine":"images/other"}', False),
        ('{"default/mine":"other/*"}', False),
        ('{"default/other":"images/*"}', False),
        ("{}", False),
        ("[", False),
    ],
)
def test_a_claim_of_another_namespace_is_cloned_only_if_permitted(allowed, is_made):
    spec = {"source": CLONE}
    metadata = {"name": "mine", "namespace": "default"}
    reference = msgspec.convert({"metadata": metadata, "spec": spec}, DataSource)
    of = volume(sourceRef={"kind": "DataSource", "name": "mine"}, annotations={PERMITTED: allowed})
    source_claim = claim(owner="", name="golden", namespace="images")
    decided = decide(of, reference=reference, source_claim=source_claim)
    assert (decided.create is not None) is is_made
    if is_made:
        assert PERMITTED not in decided.create["metadata"]["annotations"]
    else:
        assert [reason for _, reason, _ in events_of(decided)] == ["CloneNotPermitted"]


# -------------------------------------------------------------- other claims


def test_a_claim_of_another_owner_is_left_alone():
    decided = decide(volume(HTTP), claim=claim(owner=""))
    assert not decided.adopt
    assert decided.status.phase == "Pending"
    assert events_of(decided) == [
        (
            "Warning",
            "ErrResourceExists",
            'Resource "disk" already exists and is not managed by DataVolume',
        )
    ]


def test_a_claim_populated_for_the_data_volume_is_adopted():
    decided = decide(volume(HTTP), claim=claim(owner="", POPULATED_FOR="disk"))
    [owner] = decided.adopt["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("dv-1", True)
    assert decided.status.phase == "Succeeded"


@pytest.mark.parametrize(
    ("annotations", "is_full"),
    [({}, True), ({"POPULATE": "{}", "PHASE": "Succeeded"}, True), ({"POPULATE": "{}"}, False)],
)
def test_an_orphaned_claim_is_adopted_if_allowed(annotations, is_full):
    of = volume(HTTP, annotations={ADOPT_CLAIM: "true"})
    free = claim(owner="", **annotations)
    free.metadata.resourceVersion = "7"
    free.metadata.ownerReferences = [OwnerReference("v1", "Backup", "nightly", "b-1")]
    change = decide(of, claim=free).adopt["metadata"]
    assert change["resourceVersion"] == "7"
    assert [each["uid"] for each in change["ownerReferences"]] == ["b-1", "dv-1"]
    assert ("annotations" in change) is is_full
    assert decide(of, claim=claim(owner="dv-2", **annotations)).adopt is None
    assert decide(volume(HTTP), claim=claim(owner="", **annotations)).adopt is None


def test_a_populated_claim_of_another_owner_is_left_alone():
    decided = decide(volume(HTTP), claim=claim(owner="dv-2", POPULATED_FOR="disk"))
    assert not decided.adopt
    assert decided.status.phase == "Pending"


def test_a_terminating_claim_is_awaited():
    ((_, reason, message),) = events_of(decide(volume(HTTP), claim=claim(going=True)))
    assert (reason, message) == (
        "ErrResourceMarkedForDeletion",
        'Resource "disk" marked for deletion',
    )


# -------------------------------------------------------------------- phases


@pytest.mark.parametrize(
    ("source", "annotations", "phase"),
    [
        (HTTP, {}, "PVCBound"),
        (HTTP, {"PHASE": "Pending"}, "ImportScheduled"),
        (HTTP, {"PHASE": "Running"}, "ImportInProgress"),
        (HTTP, {"PHASE": "Succeeded"}, "Succeeded"),
        (HTTP, {"PHASE": "Failed"}, "Failed"),
        ({"blank": {}}, {"PHASE": "Running"}, "ImportInProgress"),
        (CLONE, {"PHASE": "Pending"}, "CloneScheduled"),
        (CLONE, {"PHASE": "Running"}, "CSICloneInProgress"),
        (CLONE, {"PHASE": "Succeeded"}, "Succeeded"),
        ({"upload": {}}, {"PHASE": "Pending"}, "UploadScheduled"),
        ({"upload": {}}, {"PHASE": "Running"}, "UploadScheduled"),
        ({"upload": {}}, {"PHASE": "Running", "READY": "true"}, "UploadReady"),
        ({"upload": {}}, {"PHASE": "Succeeded"}, "Succeeded"),
    ],
)
def test_the_phase_follows_the_claim(source, annotations, phase):
    assert decide(volume(source), claim=claim(**annotations)).status.phase == phase


@pytest.mark.parametrize(
    ("state", "binding", "phase"),
    [
        ("Pending", "Immediate", "Pending"),
        ("Pending", "WaitForFirstConsumer", "WaitForFirstConsumer"),
        ("Lost", "Immediate", "Failed"),
    ],
)
def test_the_phase_of_a_claim_that_is_not_bound(state, binding, phase):
    decided = decide(volume(HTTP), claim=claim(state), binding=binding)
    assert decided.status.phase == phase


def test_the_binding_mode_of_the_claims_own_class_counts():
    """Not by the default one, which it does not name; of a class that is gone nothing is known."""
    other = {"metadata": {"name": "other"}, "volumeBindingMode": "WaitForFirstConsumer"}
    classes = [
        msgspec.convert({"provisioner": "example.com/disks"} | each, StorageClass)
        for each in (CORRAL | {"volumeBindingMode": "Immediate"}, other)
    ]
    named = claim("Pending")
    named.spec.storageClassName = "other"

    def phase(classes):
        seen = Observed(claim=named, reference=None, source_claim=None, classes=classes, now=NOW)
        return plan(volume(HTTP), seen).status.phase

    assert [phase(classes), phase(classes[:1])] == ["WaitForFirstConsumer", "Pending"]


@pytest.mark.parametrize(
    ("source", "annotations", "event"),
    [
        (
            HTTP,
            {"PHASE": "Running"},
            ("Normal", "ImportInProgress", "Import into disk in progress"),
        ),
        (
            HTTP,
            {"PHASE": "Succeeded"},
            ("Normal", "ImportSucceeded", "Successfully imported into PVC disk"),
        ),
        (
            CLONE,
            {"PHASE": "Succeeded"},
            (
                "Normal",
                "CloneSucceeded",
                "Successfully cloned from images/golden into default/disk",
            ),
        ),
        (
            {"upload": {}},
            {"PHASE": "Running", "READY": "true"},
            ("Normal", "UploadReady", "Upload into disk ready"),
        ),
    ],
)
def test_a_new_phase_is_one_event(source, annotations, event):
    first = decide(volume(source), claim=claim(**annotations))
    assert events_of(first) == [event, ("Normal", "Bound", "PVC disk Bound")]
    again = decide(
        volume(source, status=msgspec.to_builtins(first.status)),
        claim=claim(**annotations),
        now=LATER,
    )
    assert (again.status, events_of(again)) == (first.status, [])


def test_a_lost_claim_is_reported():
    assert ("Warning", "ErrClaimLost", "PVC disk lost") in events_of(
        decide(volume(HTTP), claim=claim("Lost"))
    )


def test_progress_and_restarts_are_copied_from_the_claim():
    annotations = {"PHASE": "Running", "PROGRESS": "12.34%", "RESTARTS": "3"}
    status = decide(volume(HTTP), claim=claim(**annotations)).status
    assert (status.progress, status.restart_count, status.claim_name) == ("12.34%", 3, "disk")


@pytest.mark.parametrize(
    ("source", "phase", "progress"),
    [
        (HTTP, "Pending", "N/A"),
        (HTTP, "Succeeded", "100.0%"),
        (CLONE, "Succeeded", "100.0%"),
        ({"upload": {}}, "Succeeded", "N/A"),
    ],
)
def test_progress_is_not_available_without_an_annotation(source, phase, progress):
    assert decide(volume(source), claim=claim(PHASE=phase)).status.progress == progress


def test_conditions_during_and_after_the_population():
    going = decide(
        volume(HTTP),
        claim=claim(PHASE="Running", RUNNING_CONDITION="true", REASON="Pod is running"),
    ).status
    assert conditions(going) == {
        "Bound": ("True", "Bound", "PVC disk Bound"),
        "Ready": ("False", "TransferRunning", ""),
        "Running": ("True", "Pod is running", ""),
    }
    done = decide(
        volume(HTTP, status=msgspec.to_builtins(going)),
        claim=claim(
            PHASE="Succeeded",
            RUNNING_CONDITION="false",
            REASON="Completed",
            MESSAGE="Import Complete",
        ),
        now=LATER,
    ).status
    assert conditions(done) == {
        "Bound": ("True", "Bound", "PVC disk Bound"),
        "Ready": ("True", "", ""),
        "Running": ("False", "Completed", "Import Complete"),
    }
    assert find(done.conditions, "Bound").last_transition_time == NOW
    assert find(done.conditions, "Ready").last_transition_time == LATER


def test_a_fault_is_a_condition_and_an_event():
    annotations = {
        "PHASE": "Running",
        "RUNNING_CONDITION": "false",
        "REASON": "Error",
        "MESSAGE": "404 Not Found",
    }
    decided = decide(volume(HTTP), claim=claim(**annotations))
    assert conditions(decided.status)["Running"] == ("False", "Error", "404 Not Found")
    assert ("Warning", "Error", "404 Not Found") in events_of(decided)
    again = decide(
        volume(HTTP, status=msgspec.to_builtins(decided.status)),
        claim=claim(**annotations),
        now=LATER,
    )
    assert events_of(again) == []
