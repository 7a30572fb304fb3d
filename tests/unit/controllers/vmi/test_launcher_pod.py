import msgspec
import pytest
from lightkube.models.core_v1 import PodSpec
from tests.unit.controllers.make import make_vmi, pod

from corral.api.kinds.core import pod_resources
from corral.api.kinds.core.machine_nodes import MACHINE_NODES, TOLERATION
from corral.api.kinds.core.pod import quality_of_service
from corral.api.kinds.vmi.derived import pod_name
from corral.api.quantity import bytes_of
from corral.controllers.vmi.launcher_pod import (
    beside_checkpoint,
    compute_resources,
    pod_for,
    relabelled,
)


def of(domain, **spec):
    return make_vmi(name="testvmi", spec={"domain": {"devices": {}, **domain}, **spec})


def test_the_pod_has_the_labels_of_the_vmi_and_kubevirts():
    vmi = make_vmi(name="test.one", labels={"app": "web"})
    labels = pod_for(vmi)["metadata"]["labels"]
    assert labels == {
        "app": "web",
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": vmi.metadata.uid,
        "vm.kubevirt.io/name": "test",
        "vmi.kubevirt.io/id": "test.one",
    }


def test_a_long_name_is_cut_and_gets_a_digest():
    label = pod_for(make_vmi(name="m" * 100))["metadata"]["labels"]["vmi.kubevirt.io/id"]
    assert len(label) == 63
    assert label.startswith("m" * 54 + "-")


def test_the_name_of_the_pod_is_deterministic():
    vmi = make_vmi(name="testh8998")
    name = pod_name(vmi)
    assert name.startswith("virt-launcher-testh8998-")
    assert len(name) == len("virt-launcher-testh8998-") + 5
    assert name == pod_name(vmi)
    assert name != pod_name(make_vmi(name="testh8998"))
    assert len(pod_name(make_vmi(name="m" * 253))) == 63


def test_annotations_are_inherited_except_kubectls():
    vmi = make_vmi(name="vm")
    vmi.metadata.annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "kubevirt.io/latest-observed-api-version": "v1",
        "mine": "too",
    }
    assert pod_for(vmi)["metadata"]["annotations"] == {
        "mine": "too",
        "kubevirt.io/domain": "vm",
        "kubevirt.io/migrationTransportUnix": "true",
        "descheduler.alpha.kubernetes.io/request-evict-only": "",
        "kubectl.kubernetes.io/default-container": "compute",
    }


def test_the_grace_period_of_the_pod_is_longer_than_the_guests():
    assert pod_for(of({}))["spec"]["terminationGracePeriodSeconds"] == 60
    quick = of({}, terminationGracePeriodSeconds=0)
    assert pod_for(quick)["spec"]["terminationGracePeriodSeconds"] == 30
    longest = of({}, terminationGracePeriodSeconds=2**31 - 1)
    assert pod_for(longest)["spec"]["terminationGracePeriodSeconds"] == 2**31 - 1


def test_every_container_disk_is_a_container_beside_compute():
    volumes = [
        {"name": "root", "containerDisk": {"image": "cirros", "imagePullSecret": "key"}},
        {"name": "data", "emptyDisk": {"capacity": "1Gi"}},
        {"name": "tool", "containerDisk": {"image": "tool:1", "imagePullSecret": "key"}},
    ]
    spec = pod_for(of({}, volumes=volumes))["spec"]
    containers = spec["containers"]
    assert [each["name"] for each in containers] == ["compute", "volumeroot", "volumetool"]
    assert [each["imagePullPolicy"] for each in containers[1:]] == ["Always", "IfNotPresent"]
    assert spec["imagePullSecrets"] == [{"name": "key"}]


def test_placement_is_copied():
    spec = pod_for(
        of(
            {},
            nodeSelector={"a": "b"},
            tolerations=[{"key": "t", "operator": "Exists"}],
            affinity={"nodeAffinity": {}},
            schedulerName="mine",
        )
    )["spec"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["schedulerName"] == "mine"
    assert "topologySpreadConstraints" not in spec


def test_the_pod_selects_nodes_that_run_vmis():
    tolerations = [{"key": "t", "operator": "Exists"}]
    vmi = of({}, nodeSelector={"a": "b"}, tolerations=tolerations)
    spec = pod_for(vmi, placement=MACHINE_NODES)["spec"]
    assert spec["nodeSelector"] == {"a": "b", "kubevirt.io/schedulable": "true"}
    assert spec["tolerations"] == [*tolerations, TOLERATION]


def test_pods_beside_others_pass_the_strictest_pod_security():
    disk = {"name": "a", "containerDisk": {"image": "lab/a:1"}}
    spec = pod_for(of({}, volumes=[disk]), placement=MACHINE_NODES)["spec"]
    assert [each["name"] for each in (*spec["initContainers"], *spec["containers"])] == [
        "guest-console-log",
        "compute",
        "volumea",
    ]
    for container in (*spec["initContainers"], *spec["containers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "securityContext" not in pod_for(of({}))["spec"]["containers"][0]


def test_pods_beside_others_name_what_their_node_reads():
    volumes = [
        {"name": "reference-0", "cloudInitNoCloud": {"secretRef": {"name": "user-data"}}},
        {"name": "b", "configMap": {"name": "settings"}},
        {"name": "c", "containerDisk": {"image": "lab/a:1", "imagePullSecret": "login"}},
        {"name": "d", "serviceAccount": {"serviceAccountName": "robot"}},
        {"name": "e", "persistentVolumeClaim": {"claimName": "disk"}},
    ]
    vmi = of({}, volumes=volumes)
    spec = pod_for(vmi, placement=MACHINE_NODES)["spec"]
    assert spec["serviceAccountName"] == "robot"
    claim, *named = spec["volumes"]
    assert claim == {"name": "e", "persistentVolumeClaim": {"claimName": "disk"}}
    assert [each.pop("name") for each in named] == [f"reference-{n}" for n in (1, 2, 3, 4)]
    assert named == [
        {"configMap": {"name": "kube-root-ca.crt", "optional": True}},
        {"configMap": {"name": "settings", "optional": True}},
        {"secret": {"secretName": "login", "optional": True}},
        {"secret": {"secretName": "user-data", "optional": True}},
    ]
    assert pod_for(vmi)["spec"]["volumes"] == [claim]


def test_ports_of_interfaces_are_ports_of_the_pod():
    ports = [{"port": 80, "name": "http"}, {"port": 53, "protocol": "UDP"}]
    interfaces = [{"name": "default", "masquerade": {}, "ports": ports}]
    (compute,) = pod_for(of({"devices": {"interfaces": interfaces}}))["spec"]["containers"]
    assert compute["ports"] == [
        {"containerPort": 80, "protocol": "TCP", "name": "http"},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    assert "ports" not in pod_for(of({}))["spec"]["containers"][0]


def test_hostname_and_subdomain_are_copied():
    spec = pod_for(of({}, hostname="first", subdomain="head", dnsPolicy="None"))["spec"]
    assert (spec["hostname"], spec["subdomain"], spec["dnsPolicy"]) == ("first", "head", "None")


def test_memory_is_that_of_the_guest_and_qemu():
    resources = compute_resources(of({"resources": {"requests": {"memory": "64M"}}}))
    assert 64_000_000 + 60 * 2**20 < bytes_of(resources["requests"]["memory"]) < 132 * 2**20
    assert "limits" not in resources


def requests_of(vmi, **chosen):
    return pod_resources.requests(msgspec.convert(pod_for(vmi, **chosen)["spec"], PodSpec))


def test_idle_vmis_can_be_packed_densely_by_the_cpu_ratio():
    vmi = of(
        {"resources": {"requests": {"memory": "64M"}}},
        volumes=[{"name": "root", "containerDisk": {"image": "cirros"}}],
    )
    assert requests_of(vmi)["cpu"].rounded_up(-3) == 106
    packed = requests_of(vmi, cpu_ratio=250)
    assert packed["cpu"].rounded_up(-3) == 10
    assert 23 * 2**30 // packed["memory"].rounded_up() >= 150


@pytest.mark.parametrize(
    ("resources", "memory", "expected"),
    [
        ({"requests": {"memory": "1Gi"}}, None, 2**30),
        ({"limits": {"memory": "2Gi"}}, None, 2**31),
        ({}, {"guest": "512Mi"}, 2**29),
        ({"requests": {"memory": "256Mi"}}, {"guest": "512Mi"}, 2**28),
        ({}, {"hugepages": {"pageSize": "2Mi"}}, 2**21),
    ],
)
def test_memory_is_requested_as_kubevirt_requests_it(resources, memory, expected):
    vmi = of({"resources": {**resources, "overcommitGuestOverhead": True}, "memory": memory})
    assert bytes_of(compute_resources(vmi)["requests"]["memory"]) == expected


def test_cpu_is_as_requested_or_a_share_of_the_vcpus():
    three = of({"cpu": {"cores": 3}})
    assert compute_resources(three)["requests"]["cpu"] == "300m"
    assert compute_resources(three, cpu_ratio=7)["requests"]["cpu"] == "429m"
    named = {"requests": {"cpu": "0.5"}, "limits": {"cpu": "1"}, "overcommitGuestOverhead": True}
    assert compute_resources(of({"resources": named, "memory": {"guest": "64Mi"}})) == {
        "requests": {"cpu": "0.5", "memory": "64Mi"},
        "limits": {"cpu": "1"},
    }
    limited = of({"resources": {"limits": {"cpu": "300m"}}})
    assert compute_resources(limited)["requests"]["cpu"] == "300m"


def test_the_load_of_the_lab_is_relative_to_the_requests_of_kubevirts_pod():
    """A guest at its limit of 300m is at 283 % of 100m + 1m + 5m."""
    vmi = of(
        {"resources": {"requests": {"cpu": "100m", "memory": "265Mi"}, "limits": {"cpu": "300m"}}},
        volumes=[{"name": "root", "containerDisk": {"image": "cirros"}}],
    )
    assert 300 * 100 // requests_of(vmi)["cpu"].rounded_up(-3) == 283


def test_the_guest_console_log_is_a_sidecar():
    (log,) = pod_for(of({}))["spec"]["initContainers"]
    assert (log["name"], log["restartPolicy"]) == ("guest-console-log", "Always")
    for silent in ({"logSerialConsole": False}, {"autoattachSerialConsole": False}):
        assert "initContainers" not in pod_for(of({"devices": silent}))["spec"]


def test_a_guaranteed_vmi_has_a_guaranteed_pod():
    whole = {"cpu": "1", "memory": "1Gi"}
    disks = [{"name": "root", "containerDisk": {"image": "cirros"}}]
    limits = {"resources": {"requests": whole, "limits": whole}}
    guaranteed = pod_for(of(limits, volumes=disks))
    assert quality_of_service(guaranteed) == "Guaranteed"
    some = {"resources": {"requests": {"memory": "1Gi"}, "limits": whole}}
    assert quality_of_service(pod_for(of(some, volumes=disks))) == "Burstable"


def test_probes_are_those_of_the_compute_container():
    ready = {"tcpSocket": {"port": 22}, "periodSeconds": 5}
    spec = pod_for(of({}, readinessProbe=ready, livenessProbe={"guestAgentPing": {}}))["spec"]
    compute = spec["containers"][0]
    assert compute["readinessProbe"]["tcpSocket"]["port"] == 22
    assert compute["readinessProbe"]["periodSeconds"] == 5
    assert compute["livenessProbe"]["exec"]["command"] == ["virt-probe", "--guestAgentPing"]
    assert spec["readinessGates"] == [
        {"conditionType": "kubevirt.io/virtual-machine-unpaused"},
    ]
    plain = pod_for(of({}))["spec"]["containers"][0]
    assert "readinessProbe" not in plain
    assert "livenessProbe" not in plain


def test_the_service_account_of_a_volume_is_the_pods():
    volumes = [{"name": "who", "serviceAccount": {"serviceAccountName": "robot"}}]
    spec = pod_for(of({}, volumes=volumes))["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("robot", True)
    spec = pod_for(of({}))["spec"]
    assert "serviceAccountName" not in spec
    assert spec["automountServiceAccountToken"] is False


def test_the_pod_of_a_spare_that_was_handed_out_gets_the_labels_of_its_vmi():
    spare = {"corral.dev/warm-pool": "spares", "corral.dev/template-hash": "0123"}
    vmi = make_vmi(labels={"app": "web"})
    one = pod(vmi)
    assert relabelled(vmi, one) is None
    one.metadata.labels = {**spare, "kubevirt.io": "virt-launcher"}
    assert relabelled(make_vmi(labels=spare), one) is None
    vmi.metadata.labels["kubevirt.io/created-by"] = "another"
    labels = relabelled(vmi, one)["metadata"]["labels"]
    assert {name: labels[name] for name in spare} == dict.fromkeys(spare)
    assert (labels["app"], labels["kubevirt.io/created-by"]) == ("web", vmi.metadata.uid)


def test_the_first_pod_of_a_fork_is_bound_to_the_node_of_its_checkpoint():
    vmi = of({}, nodeSelector={"disk": "fast"})
    document = pod_for(vmi)
    assert beside_checkpoint(document, vmi) is document
    vmi.metadata.annotations = {"corral.dev/start-from": "base", "corral.dev/start-on": "node1"}
    selector = beside_checkpoint(document, vmi)["spec"]["nodeSelector"]
    assert selector == {"disk": "fast", "kubernetes.io/hostname": "node1"}
    assert document["spec"]["nodeSelector"] == {"disk": "fast"}
