"""Kubernetes' own kinds: what kubectl prints of them, what they get, what they may not be."""

import copy
from typing import Any

import pytest

from corral.api.kind import Kind
from corral.api.kinds.core import event, kinds as core, pod
from corral.api.kinds.core.event import EVENT, EVENTS_EVENT
from corral.api.kinds.core.pod import POD

NOW = "2026-01-31T12:00:00Z"


def printed(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    return {column.name: column.cell(document) for column in kind.columns}


def headers(kind: Kind, *, wide: bool) -> list[str]:
    return [column.name.upper() for column in kind.columns if wide or not column.priority]


@pytest.mark.parametrize(
    ("kind", "usual", "wide"),
    [
        (core.NAMESPACE, "STATUS AGE", ""),
        (core.SECRET, "TYPE DATA AGE", ""),
        (core.CONFIG_MAP, "DATA AGE", ""),
        (core.SERVICE_ACCOUNT, "SECRETS AGE", ""),
        (core.LEASE, "HOLDER AGE", ""),
        (
            core.NODE,
            "STATUS ROLES AGE VERSION",
            "INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME",
        ),
        (POD, "READY STATUS RESTARTS AGE", "IP NODE NOMINATED_NODE READINESS_GATES"),
    ],
    ids=repr,
)
def test_columns_are_kubernetes(kind, usual, wide):
    def words(text: str) -> list[str]:
        return [word.replace("_", " ") for word in text.split()]

    assert headers(kind, wide=False) == words(usual)
    assert headers(kind, wide=True) == words(usual) + words(wide)
    assert kind.name_first


def test_tables_of_events_have_the_name_last():
    assert headers(EVENT, wide=False) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert headers(EVENT, wide=True) == [
        "LAST SEEN",
        "TYPE",
        "REASON",
        "OBJECT",
        "SUBOBJECT",
        "SOURCE",
        "MESSAGE",
        "FIRST SEEN",
        "COUNT",
        "NAME",
    ]
    assert not EVENT.name_first
    assert EVENTS_EVENT.columns is EVENT.columns


# ---------------------------------------------------------------- small kinds


def test_a_new_namespace_is_active_and_has_the_name_label():
    document: dict[str, Any] = {"metadata": {"name": "lab", "labels": {"a": "b"}}}
    core.NAMESPACE.default(document)
    core.NAMESPACE.default_create(document)
    assert document["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "lab"}
    assert document["spec"] == {"finalizers": ["kubernetes"]}
    assert document["status"] == {"phase": "Active"}


def test_the_finalizer_of_a_namespace_is_removed_by_finalize_only():
    old: dict[str, Any] = {"metadata": {"name": "lab"}, "spec": {"finalizers": ["kubernetes"]}}
    document: dict[str, Any] = {"metadata": {"name": "lab"}, "spec": {"finalizers": []}}
    core.NAMESPACE.keep(document, old, "anybody")
    assert document == old


@pytest.mark.parametrize(
    ("ends", "wrong", "right"),
    [
        (None, "Terminating", "Active"),
        (NOW, "Active", "Terminating"),
    ],
)
def test_a_deleted_namespace_has_phase_terminating(ends, wrong, right):
    old = {"metadata": {"deletionTimestamp": ends}, "status": {"phase": "Active", "note": "a"}}

    def causes(**status):
        return core.NAMESPACE.validate(old | {"status": status}, old, "anybody").causes

    assert not causes(**old["status"])  # what is so stays so
    assert not causes(phase=right)
    (cause,) = causes(phase=wrong)
    moment = "not empty" if ends else "empty"
    assert (cause.field, cause.message) == (
        "status.Phase",
        f"Invalid value: \"{wrong}\": may only be '{right}' if `deletionTimestamp` is {moment}",
    )


def test_tables_of_nodes_have_condition_roles_and_addresses():
    document = {
        "metadata": {
            "creationTimestamp": NOW,
            "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": ""},
        },
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0-corral", "osImage": "Debian"},
        },
    }
    assert printed(core.NODE, document) == {
        "Status": "Ready,SchedulingDisabled",
        "Roles": "edge,worker",
        "Age": NOW,
        "Version": "v1.37.0-corral",
        "Internal-IP": "10.0.0.7",
        "External-IP": "<none>",
        "OS-Image": "Debian",
        "Kernel-Version": "<unknown>",
        "Container-Runtime": "<unknown>",
    }


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], "Unknown"),
        ([{"type": "Ready", "status": "False"}], "NotReady"),
        ([{"type": "Ready", "status": "Unknown"}], "NotReady"),
    ],
)
def test_nodes_that_are_not_ready(conditions, status):
    assert printed(core.NODE, {"status": {"conditions": conditions}})["Status"] == status


def test_string_data_of_a_secret_becomes_data():
    document = {"data": {"a": "YQ=="}, "stringData": {"a": "new", "b": "text"}}
    core.SECRET.default(document)
    assert document == {"type": "Opaque", "data": {"a": "bmV3", "b": "dGV4dA=="}}
    assert printed(core.SECRET, document)["Data"] == 2


def fields(kind: Kind, document: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [cause.field for cause in kind.validate(document, old, "kubernetes-admin").causes]


@pytest.mark.parametrize(
    ("document", "old", "wrong"),
    [
        ({"data": {"a": "YQ=="}}, None, []),
        ({"data": {"no/slash": "YQ=="}}, None, ["data[no/slash]"]),
        ({"data": {"..": "YQ=="}}, None, ["data[..]"]),
        ({"data": {"a": "A" * 4 * 512 * 1024}}, None, ["data"]),
        ({"type": "b"}, {"type": "a"}, ["type"]),
        ({"data": {}, "immutable": True}, {"data": {"a": "YQ=="}}, []),
        ({"data": {}, "immutable": True}, {"data": {"a": "YQ=="}, "immutable": True}, ["data"]),
        ({"immutable": False}, {"immutable": True}, ["immutable"]),
    ],
)
def test_invalid_secrets_are_rejected(document, old, wrong):
    assert fields(core.SECRET, document, old) == wrong


@pytest.mark.parametrize(
    ("document", "old", "wrong"),
    [
        ({"data": {"a": "b"}, "binaryData": {"b": "YQ=="}}, None, []),
        ({"data": {"a": "b"}, "binaryData": {"a": "YQ=="}}, None, ["data[a]"]),
        ({"data": {"a b": "c"}}, None, ["data[a b]"]),
        ({"data": {"a": "b" * (1024 * 1024 + 1)}}, None, ["[]"]),
        ({"data": {"a": "c"}}, {"data": {"a": "b"}, "immutable": True}, ["immutable", "data"]),
    ],
)
def test_invalid_config_maps_are_rejected(document, old, wrong):
    assert fields(core.CONFIG_MAP, document, old) == wrong


def test_lease_durations_must_be_positive():
    assert fields(core.LEASE, {"spec": {"leaseDurationSeconds": 15}}) == []
    assert fields(core.LEASE, {"spec": {"leaseDurationSeconds": 0}}) == [
        "spec.leaseDurationSeconds"
    ]
    assert fields(core.LEASE, {"spec": {"leaseTransitions": -1}}) == ["spec.leaseTransitions"]


# --------------------------------------------------------------------- events

CORE_EVENT = {
    "metadata": {"name": "vm.1", "namespace": "default"},
    "involvedObject": {"kind": "VirtualMachineInstance", "name": "vm", "namespace": "default"},
    "reason": "Started",
    "message": " VirtualMachineInstance started. ",
    "type": "Normal",
    "source": {"component": "virt-handler", "host": "corral"},
    "firstTimestamp": "2026-01-31T12:00:00Z",
    "lastTimestamp": "2026-01-31T12:01:00Z",
    "count": 3,
    "eventTime": None,
}


def test_tables_of_events():
    assert printed(EVENT, CORE_EVENT) == {
        "Last Seen": "2026-01-31T12:01:00Z",
        "Type": "Normal",
        "Reason": "Started",
        "Object": "virtualmachineinstance/vm",
        "Subobject": None,
        "Source": "virt-handler, corral",
        "Message": "VirtualMachineInstance started.",
        "First Seen": "2026-01-31T12:00:00Z",
        "Count": 3,
        "Name": "vm.1",
    }


def test_tables_of_events_of_events_k8s_io():
    document = {
        "eventTime": "2026-01-31T12:00:00.000001Z",
        "regarding": {"kind": "Node"},
        "reportingController": "scheduler",
        "note": "hello",
        "series": {"count": 4, "lastObservedTime": "2026-01-31T12:05:00.000001Z"},
    }
    event.to_core(document)
    cells = printed(EVENT, document)
    assert cells["Last Seen"] == "2026-01-31T12:05:00.000001Z"
    assert cells["First Seen"] == "2026-01-31T12:00:00.000001Z"
    assert (cells["Count"], cells["Source"], cells["Object"]) == (4, "scheduler", "node")


def test_both_versions_of_events_convert_into_each_other():
    document = dict(CORE_EVENT)
    event.from_core(document)
    assert document["note"] == CORE_EVENT["message"]
    assert document["regarding"] == CORE_EVENT["involvedObject"]
    assert document["deprecatedSource"] == CORE_EVENT["source"]
    assert document["deprecatedCount"] == 3
    assert not document.keys() & {"message", "involvedObject", "source", "count"}
    event.to_core(document)
    assert document == CORE_EVENT


def test_events_are_stored_once():
    assert EVENTS_EVENT.stored_as == (EVENT.group, EVENT.plural)
    assert EVENT.selectable["involvedObject.name"](CORE_EVENT) == "vm"
    assert EVENTS_EVENT.selectable["regarding.name"](CORE_EVENT) == "vm"
    assert EVENT.selectable["source"](CORE_EVENT) == "virt-handler"
    assert EVENT.selectable["reason"](CORE_EVENT) == "Started"


@pytest.mark.parametrize(
    ("home", "about", "wrong"),
    [
        ("default", "default", []),
        ("default", "", []),
        ("lab", "lab", []),
        ("lab", "", ["involvedObject.namespace"]),
        ("lab", "default", ["involvedObject.namespace"]),
    ],
)
def test_the_namespace_of_an_event_is_that_of_its_object(home, about, wrong):
    document = {"metadata": {"namespace": home}, "involvedObject": {"namespace": about}}
    assert fields(EVENT, document) == wrong


# ----------------------------------------------------------------------- pods


def a_pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "virt-launcher-vm-abcde", "creationTimestamp": NOW},
        "spec": {
            "containers": [{"name": "compute", "image": "corral"}],
            "readinessGates": [{"conditionType": "kubevirt.io/virtual-machine-unpaused"}],
        },
        "status": {"phase": "Running", **status},
    }


def container(name: str = "compute", **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": "running" in state, "restartCount": 0, "state": state}


@pytest.mark.parametrize(
    ("status", "word", "ready"),
    [
        ({"phase": "Pending"}, "Pending", "0/1"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [container(waiting={"reason": "ImagePullBackOff"})],
            },
            "ImagePullBackOff",
            "0/1",
        ),
        ({"containerStatuses": [container(running={})]}, "Running", "1/1"),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [container(terminated={"reason": "Completed"})],
            },
            "Completed",
            "0/1",
        ),
        (
            {"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 7})]},
            "ExitCode:7",
            "0/1",
        ),
        (
            {"phase": "Failed", "containerStatuses": [container(terminated={"signal": 9})]},
            "Signal:9",
            "0/1",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "0/1"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
            "SchedulingGated",
            "0/1",
        ),
    ],
)
def test_the_status_column_of_pods(status, word, ready):
    cells = printed(POD, a_pod(**status))
    assert (cells["Status"], cells["Ready"]) == (word, ready)


def test_a_deleted_pod_is_terminating_until_it_has_ended():
    document = a_pod(containerStatuses=[container(running={})])
    document["metadata"]["deletionTimestamp"] = NOW
    assert pod.word(document) == "Terminating"
    document["status"]["reason"] = "NodeLost"
    assert pod.word(document) == "Unknown"
    document["status"] = {"phase": "Succeeded"}
    assert pod.word(document) == "Succeeded"


def test_a_pod_waits_for_its_init_containers_but_not_for_sidecars():
    document = a_pod(
        phase="Pending",
        initContainerStatuses=[
            container("disk", terminated={"exitCode": 0}),
            container("logs", running={}) | {"started": True},
            container("probe", waiting={"reason": "PodInitializing"}),
        ],
    )
    document["spec"]["initContainers"] = [
        {"name": "disk"},
        {"name": "logs", "restartPolicy": "Always"},
        {"name": "probe"},
    ]
    assert (pod.word(document), pod.ready(document)) == ("Init:2/3", "1/2")
    document["status"]["initContainerStatuses"][2] = container("probe", terminated={"exitCode": 3})
    assert pod.word(document) == "Init:ExitCode:3"


def test_a_pod_with_a_running_container_is_not_completed():
    statuses = [container("a", terminated={"reason": "Completed"}), container("b", running={})]
    document = a_pod(containerStatuses=statuses)
    assert pod.word(document) == "NotReady"
    document["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod.word(document) == "Running"


def test_tables_of_pods_have_ip_and_node():
    document = a_pod(
        podIPs=[{"ip": "10.0.0.9"}],
        conditions=[{"type": "kubevirt.io/virtual-machine-unpaused", "status": "True"}],
    )
    document["spec"]["nodeName"] = "corral"
    cells = printed(POD, document)
    assert (cells["IP"], cells["Node"], cells["Readiness Gates"]) == ("10.0.0.9", "corral", "1/1")
    assert POD.selectable["spec.nodeName"](document) == "corral"
    assert POD.selectable["status.phase"](document) == "Running"
    cells = printed(POD, {"status": {}})
    assert (cells["IP"], cells["Node"], cells["Nominated Node"]) == ("<none>",) * 3


def test_defaults_of_pods():
    document: dict[str, Any] = {
        "spec": {
            "containers": [
                {"name": "a", "image": "a", "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "b:1", "resources": {"limits": {"cpu": "1"}}},
            ]
        }
    }
    POD.default(document)
    POD.default_create(document)
    first, second = document["spec"]["containers"]
    assert document["spec"]["restartPolicy"] == "Always"
    assert document["spec"]["terminationGracePeriodSeconds"] == 30
    assert first["imagePullPolicy"] == "Always"
    assert first["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert second["imagePullPolicy"] == "IfNotPresent"
    assert second["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert document["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0"}}, "Burstable"),
        ({"limits": {"cpu": "0", "memory": "1Gi"}}, "Burstable"),
    ],
)
def test_quality_of_service_follows_from_resources(resources, quality):
    document = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    assert pod.quality_of_service(document) == quality


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({"containers": [{"name": "a", "image": "a"}]}, []),
        ({}, ["spec.containers"]),
        ({"containers": [{"name": "A_B", "image": "a"}]}, ["spec.containers[0].name"]),
        ({"containers": [{"image": "a"}]}, ["spec.containers[0].name"]),
        ({"containers": [{"name": "a"}]}, ["spec.containers[0].image"]),
        ({"containers": [{"name": "a", "image": "a"}] * 2}, ["spec.containers[1].name"]),
        (
            {
                "initContainers": [
                    {"name": "a", "image": "a", "resources": {"requests": {"storage": "1"}}}
                ],
                "containers": [
                    {
                        "name": "a",
                        "image": "a",
                        "resources": {
                            "requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "a.b/c": "1"}
                        },
                    }
                ],
            },
            ["spec.initContainers[0].resources.requests[storage]"],
        ),
        (
            {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Often"},
            ["spec.restartPolicy"],
        ),
        (
            {
                "containers": [{"name": "a", "image": "a"}],
                "terminationGracePeriodSeconds": -1,
            },
            ["spec.terminationGracePeriodSeconds"],
        ),
        (
            {
                "containers": [{"name": "a", "image": "a"}],
                "terminationGracePeriodSeconds": 2**31,
            },
            ["spec.terminationGracePeriodSeconds"],
        ),
    ],
)
def test_invalid_pods_are_rejected(spec, wrong):
    document = {"spec": spec}
    POD.default(document)
    assert fields(POD, document) == wrong


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ram",
            [
                "must be a standard resource type or fully qualified",
                "must be a standard resource for containers",
            ],
        ),
        ("storage", ["must be a standard resource for containers"]),
        ("requests.a.b/c", ["doesn't follow extended resource name standard"]),
        (f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 61}/e", []),
        (
            f"{'a' * 62}.{'b' * 62}.{'c' * 62}.{'d' * 61}/e",
            ["doesn't follow extended resource name standard"],
        ),
    ],
)
def test_invalid_resource_names_are_rejected(name, expected):
    container = {"name": "a", "image": "a", "resources": {"requests": {name: "1"}}}
    document = {"spec": {"containers": [container]}}
    POD.default(document)
    path = f"spec.containers[0].resources.requests[{name}]"
    causes = POD.validate(document, None, "").causes
    assert [(cause.field, cause.message.rpartition('": ')[2]) for cause in causes] == [
        (path, each) for each in expected
    ]
    assert POD.validate(document, copy.deepcopy(document), "").causes == []


def test_pods_of_containers_have_a_warning():
    def warnings(old=None, **owner):
        metadata = {"ownerReferences": [owner]} if owner else {}
        containers = {"containers": [{"name": "a", "image": "a"}]}
        document = {"metadata": metadata, "spec": containers}
        POD.default(document)
        return POD.validate(document, old, "").warnings

    (expected,) = warnings()
    assert expected.startswith(
        "corral runs virtual machines, not containers: nothing runs this Pod;"
    )
    assert warnings(old={"spec": {}}) == []
    assert warnings(kind="VirtualMachineInstance", controller=True) == []
    assert warnings(kind="ReplicaSet", controller=True) == warnings()
    assert warnings(kind="VirtualMachineInstance") == warnings()


def test_the_spec_of_a_pod_is_immutable_except_images_and_tolerations():
    def defaulted(**more: Any) -> dict[str, Any]:
        document = {"spec": {"containers": [{"name": "a", "image": "a"}], **more}}
        POD.default(document)
        return document

    old, new = defaulted(), defaulted(tolerations=[{"operator": "Exists"}])
    new["spec"]["containers"][0]["image"] = "b"
    assert fields(POD, new, old) == []
    assert fields(POD, defaulted(hostNetwork=True), old) == ["spec"]


def test_pods_have_graceful_deletion():
    assert POD.default_grace_seconds is not None
    assert POD.default_grace_seconds({"spec": {}}) == 30
    assert POD.default_grace_seconds({"spec": {"terminationGracePeriodSeconds": 0}}) == 0
