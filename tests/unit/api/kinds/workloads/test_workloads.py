"""Workloads: what they are completed with, what is refused of them, and how they are printed."""

import pytest

from corral.api.kind import Kind
from corral.api.kinds.workloads import CORE, KINDS
from corral.api.kinds.workloads.daemon_set import DAEMON_SET
from corral.api.kinds.workloads.deployment import DEPLOYMENT
from corral.api.kinds.workloads.job import JOB
from corral.api.kinds.workloads.replica_set import REPLICA_SET, REPLICATION_CONTROLLER
from corral.api.kinds.workloads.stateful_set import STATEFUL_SET
from corral.api.schema import schema_for

LABELS = {"app": "web"}
POD = {"containers": [{"name": "c", "image": "nginx"}]}
KEPT = (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)


def template(**spec) -> dict:
    return {"metadata": {"labels": dict(LABELS)}, "spec": POD | spec}


def workload(**spec) -> dict:
    spec = {"selector": {"matchLabels": dict(LABELS)}, "template": template()} | spec
    return {"metadata": {"name": "web", "uid": "7"}, "spec": spec}


def completed(kind: Kind, document: dict) -> dict:
    assert schema_for(kind).check(document) == []
    kind.default(document)
    return document


def causes(kind: Kind, document: dict, old: dict | None = None) -> list[tuple[str, str]]:
    verdict = kind.validate(completed(kind, document), old, "somebody")
    return [(cause.field, cause.message) for cause in verdict.causes]


@pytest.mark.parametrize("kind", KEPT, ids=repr)
def test_a_workload_is_accepted_with_a_warning(kind):
    verdict = kind.validate(completed(kind, workload()), None, "somebody")
    assert verdict.causes == []
    assert verdict.warnings == [
        f"corral runs virtual machines, not containers: nothing acts on this {kind.name}"
    ]


def test_a_deployment_has_kubernetes_defaults():
    spec = completed(DEPLOYMENT, workload())["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }  # fmt: skip
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_a_stateful_set_completes_its_claims():
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    spec = completed(STATEFUL_SET, workload(volumeClaimTemplates=[claim]))["spec"]
    assert spec["volumeClaimTemplates"][0]["spec"]["volumeMode"] == "Filesystem"
    assert spec["volumeClaimTemplates"][0]["status"] == {"phase": "Pending"}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


def test_a_replication_controller_gets_selector_and_labels_of_its_template():
    document = {"metadata": {"name": "old"}, "spec": {"template": template()}}
    completed(REPLICATION_CONTROLLER, document)
    assert document["spec"]["selector"] == LABELS
    assert document["metadata"]["labels"] == LABELS
    assert causes(REPLICATION_CONTROLLER, document) == []


def test_a_job_labels_its_pod_template():
    document = {"metadata": {"name": "j", "uid": "7"}, "spec": {"template": {"spec": dict(POD)}}}
    document["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    JOB.default_create(document)
    assert causes(JOB, document) == []
    assert document["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": "7"}
    }
    assert document["metadata"]["labels"]["job-name"] == "j"
    assert (document["spec"]["completions"], document["spec"]["backoffLimit"]) == (1, 6)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (DEPLOYMENT, "deployment"),
        (REPLICA_SET, "deployment"),
        (STATEFUL_SET, "statefulset"),
        (DAEMON_SET, "daemonset"),
    ],
    ids=repr,
)
def test_the_selector_must_not_be_empty_and_must_match_the_template(kind, word):
    assert causes(kind, workload(selector={})) == [
        ("spec.selector", f"Invalid value: {{}}: empty selector is invalid for {word}")
    ]
    [(field, message)] = causes(kind, workload(selector={"matchLabels": {"app": "other"}}))
    assert field == "spec.template.metadata.labels"
    assert message.endswith("`selector` does not match template `labels`")


@pytest.mark.parametrize("kind", KEPT, ids=repr)
def test_the_restart_policy_of_replicated_pods_is_always(kind):
    [(field, message)] = causes(kind, workload(template=template(restartPolicy="Never")))
    assert field == "spec.template.spec.restartPolicy"
    assert message == 'Unsupported value: "Never": supported values: "Always"'


def test_a_job_must_set_the_restart_policy():
    document = workload(manualSelector=True)
    assert causes(JOB, document)[0] == (
        "spec.template.spec.restartPolicy",
        'Required value: valid values: "OnFailure", "Never"',
    )


@pytest.mark.parametrize(
    ("kind", "spec", "field", "message"),
    [
        (DEPLOYMENT, {"replicas": -1}, "spec.replicas", "must be greater than or equal to 0"),
        (
            DEPLOYMENT,
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        (DEPLOYMENT, {"strategy": {"type": "Slow"}}, "spec.strategy.type", "Unsupported value"),
        (
            DEPLOYMENT,
            {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            "may not be 0 when `maxSurge` is 0",
        ),
        (
            DEPLOYMENT,
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            "spec.progressDeadlineSeconds",
            "must be greater than minReadySeconds",
        ),
        (
            DAEMON_SET,
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}},
            "spec.updateStrategy.rollingUpdate.maxSurge",
            "may not be set when maxUnavailable is non-zero",
        ),
        (
            STATEFUL_SET,
            {"podManagementPolicy": "Chaos"},
            "spec.podManagementPolicy",
            "must be 'OrderedReady' or 'Parallel'",
        ),
        (
            STATEFUL_SET,
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}},
            "spec.updateStrategy.rollingUpdate",
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
    ],
)
def test_invalid_workloads_are_rejected(kind, spec, field, message):
    [(where, expected)] = causes(kind, workload(**spec))
    assert where == field
    assert message in expected


@pytest.mark.parametrize("kind", [DEPLOYMENT, REPLICA_SET, DAEMON_SET], ids=repr)
def test_the_selector_is_immutable(kind):
    old = completed(kind, workload())
    labels = {"app": "web", "more": "b"}
    new = workload(selector={"matchLabels": labels})
    new["spec"]["template"]["metadata"]["labels"] = labels
    [(field, message)] = causes(kind, new, old)
    assert (field, message.rpartition(": ")[2]) == ("spec.selector", "field is immutable")


def test_some_fields_of_a_stateful_set_are_mutable():
    old = completed(STATEFUL_SET, workload())
    assert causes(STATEFUL_SET, workload(replicas=5), old) == []
    [(field, message)] = causes(STATEFUL_SET, workload(serviceName="other"), old)
    assert field == "spec"
    assert message == (
        "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', "
        "'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )


def test_the_pod_template_of_a_job_is_immutable():
    old = workload(manualSelector=True, template=template(restartPolicy="Never"))
    new = workload(manualSelector=True, template=template(restartPolicy="OnFailure"))
    completed(JOB, old)
    assert [field for field, _ in causes(JOB, new, old)] == ["spec.template"]
    old["spec"]["suspend"] = True
    assert causes(JOB, new, old) == []


def cells(kind: Kind, document: dict) -> dict:
    return {column.name: column.cell(document) for column in kind.columns}


def test_missing_values_are_printed_as_none():
    assert cells(DEPLOYMENT, completed(DEPLOYMENT, workload(replicas=3))) == {
        "Ready": "0/3", "Up-to-date": 0, "Available": 0, "Age": None,
        "Containers": "c", "Images": "nginx", "Selector": "app=web",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ([], "Running"),
        ([("Suspended", "True")], "Suspended"),
        ([("FailureTarget", "True"), ("Failed", "True")], "Failed"),
        ([("SuccessCriteriaMet", "True"), ("Complete", "True")], "Complete"),
        ([("Complete", "False")], "Running"),
    ],
)
def test_the_status_column_of_jobs(status, word):
    document = workload(completions=3)
    document["status"] = {
        "conditions": [{"type": name, "status": value} for name, value in status],
        "succeeded": 2,
        "startTime": "2026-01-31T12:00:00Z",
        "completionTime": "2026-01-31T12:01:30Z",
    }
    printed = cells(JOB, document)
    assert (printed["Status"], printed["Completions"], printed["Duration"]) == (word, "2/3", "90s")


@pytest.mark.parametrize("kind", [*CORE, *KINDS], ids=repr)
def test_an_empty_workload_is_validated(kind):
    document = {"metadata": {"name": "x"}}
    schema = schema_for(kind)
    if schema.check(document):
        return
    kind.default(document)
    assert kind.validate(document, None, "somebody").causes
