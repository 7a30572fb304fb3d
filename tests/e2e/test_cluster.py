"""``corral controllers`` and ``corral node`` on an API server that is not theirs.

The accounts have the rights of an installation, and no others.  ``./dev cluster KUBECONFIG`` runs
this on any Kubernetes.
"""

import contextlib
import json
import os
import re
import subprocess
import urllib.request
from http.client import HTTPSConnection
from urllib.parse import urlencode

import pytest
import yaml
from bench.cluster import trusting
from tests.cluster import EXAMPLES, KUBECTL, ranges, until
from tests.separate import NODE, Separate, separate
from tests.terminal import Terminal

from corral import pki
from corral.api.images import IMAGES_PATH
from corral.api.kinds.storage.common import WAITING_CLASS
from corral.cluster.persistent_volumes.default_storage_class import storage_class

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

HOLLOW, REAL = f"hollow-{os.getpid()}", f"real-{os.getpid()}"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two processes of controllers, and a node of simulated machines."""
    with separate(tmp_path_factory.mktemp("cluster"), *ranges(__file__)) as one:
        for _ in range(2):
            one.start_controllers()
        provisioner = ("--provisioner-kubeconfig", str(one.account(NODE)))
        one.start_node(HOLLOW, "--machine", "hollow", *provisioner, *address(one, 1))
        until("the node is ready", lambda: one.is_ready(HOLLOW))
        yield one
        one.kubectl("delete", "node", HOLLOW, REAL, "--ignore-not-found")


def address(one: Separate, number: int) -> tuple[str, ...]:
    """A node's address: on this host where the server is ours, else the one towards the server."""
    return ("--address", f"127.0.0.{number}") if one.is_ours else ()


def manifest(example: str, node: str, name: str) -> dict:
    """An example of the user guide whose machines run on one node."""
    document = yaml.safe_load((EXAMPLES / example).read_text())
    document["metadata"]["name"] = name
    template = document["spec"].get("virtualMachineTemplate", document)["spec"]["template"]
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    template["spec"]["terminationGracePeriodSeconds"] = 0
    return document


def is_settled(one: Separate, kind: str, name: str, replicas: int) -> bool:
    status = one.get(kind, name).get("status", {})
    return [status.get(each, 0) for each in ("replicas", "readyReplicas")] == [replicas, replicas]


def machines(one: Separate, owner: str) -> dict[str, dict]:
    """The VMIs whose names begin as those of a set or pool, by uid."""
    return {
        each["metadata"]["uid"]: each
        for each in one.items("vmi")
        if each["metadata"]["name"].startswith(owner)
    }


def requests(one: Separate, node: str) -> list[dict]:
    """The certificate requests for a node."""
    return [
        each for each in one.items("csr")
        if each["metadata"]["name"].startswith(f"node-csr-{node}")
    ]  # fmt: skip


def test_the_node_is_kept_for_machines(cluster):
    node = cluster.node(HOLLOW)
    assert {"key": "corral.dev/machines", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["spec"]["podCIDRs"]
    assert node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true"
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    assert port == cluster.nodes[HOLLOW].port


def test_the_node_has_its_certificates_by_requests(cluster):
    until("its certificates are signed", lambda: len(signed(cluster)) == 2 or not cluster.is_ours)
    by_signer = {each["spec"]["signerName"]: each["spec"] for each in requests(cluster, HOLLOW)}
    account = "system:serviceaccount:corral-system:corral-node"
    assert by_signer[KUBELET_CLIENT]["username"] == account
    assert by_signer[KUBELET_SERVING]["username"] == f"system:node:{HOLLOW}"


def signed(cluster: Separate) -> list[dict]:
    return [each for each in requests(cluster, HOLLOW) if "certificate" in each.get("status", {})]


def test_a_set_is_created_scaled_and_repaired(cluster):
    cluster.create(manifest("testreplicaset.yaml", HOLLOW, "testreplicaset"))
    until("three are ready", lambda: is_settled(cluster, "vmirs", "testreplicaset", 3))
    vmis = machines(cluster, "test")
    assert {each["status"]["nodeName"] for each in vmis.values()} == {HOLLOW}
    assert {each["status"]["phase"] for each in vmis.values()} == {"Running"}

    cluster.kubectl("scale", "vmirs", "testreplicaset", "--replicas=5")
    until("five are ready", lambda: is_settled(cluster, "vmirs", "testreplicaset", 5))
    victim = next(iter(machines(cluster, "test").values()))["metadata"]
    cluster.kubectl("delete", "vmi", victim["name"])
    until("it is gone", lambda: victim["uid"] not in machines(cluster, "test"))
    until("it is replaced", lambda: is_settled(cluster, "vmirs", "testreplicaset", 5))


def test_a_pool_is_created_scaled_and_repaired(cluster):
    cluster.create(manifest("vm-pool-cirros.yaml", HOLLOW, "pool"))
    until("three are ready", lambda: is_settled(cluster, "vmpool", "pool", 3))
    cluster.kubectl("scale", "vmpool", "pool", "--replicas=4")
    until("four are ready", lambda: is_settled(cluster, "vmpool", "pool", 4))
    cluster.kubectl("delete", "vm", "pool-1")
    until("it is replaced", lambda: is_settled(cluster, "vmpool", "pool", 4))
    assert len(machines(cluster, "pool")) == 4
    cluster.kubectl("scale", "vmpool", "pool", "--replicas=1")
    until("one is left", lambda: is_settled(cluster, "vmpool", "pool", 1))


def test_pods_pass_the_strictest_pod_security(cluster):
    """Kubernetes' own admission says so there; here the fields are what it looks at."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", cluster.namespace, label)
    cluster.kubectl("scale", "vmirs", "testreplicaset", "--replicas=6")
    until("six are ready", lambda: is_settled(cluster, "vmirs", "testreplicaset", 6))
    for pod in cluster.items("pods"):
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


NODES_WRITE_NO_CLAIMS = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": ["persistentvolumeclaims"],
            }
        ]
    },
    "validations": [{"expression": "!('system:nodes' in request.userInfo.groups)"}],
}
"""A policy with the rule of Kubernetes' NodeRestriction for claims, which ours lets nodes write."""


def test_claims_are_written_by_the_provisioner(cluster):
    policy, group = f"claims-{os.getpid()}", "admissionregistration.k8s.io/v1"
    for kind, spec in (
        ("ValidatingAdmissionPolicy", NODES_WRITE_NO_CLAIMS),
        ("ValidatingAdmissionPolicyBinding", {"policyName": policy, "validationActions": ["Deny"]}),
    ):
        metadata = {"name": policy}
        cluster.create({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})
        cluster.stack.callback(cluster.kubectl, "delete", kind, policy)
    stored = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    stored |= storage_class(WAITING_CLASS)
    cluster.kubectl("apply", "-f", "-", input=json.dumps(stored))
    cluster.create(yaml.safe_load(CLAIM))
    vmi = manifest("testreplicaset.yaml", HOLLOW, "disk")["spec"]["template"]
    disk = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    vmi["spec"]["volumes"].append(disk)
    vmi["spec"]["domain"]["devices"]["disks"].append({"name": "disk", "disk": {}})
    vmi |= {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    vmi["metadata"] = {"name": "disk"}
    cluster.create(vmi)
    until("it runs", lambda: cluster.get("vmi", "disk").get("status", {}).get("phase") == "Running")
    assert cluster.get("pvc", "disk")["status"]["phase"] == "Bound"
    larger = {"spec": {"resources": {"requests": {"storage": "20Mi"}}}}
    cluster.kubectl("patch", "pvc", "disk", "-p", json.dumps(larger))
    until(
        "it has grown",
        lambda: cluster.get("pvc", "disk")["status"]["capacity"] == {"storage": "20Mi"},
    )
    cluster.kubectl("delete", "vmi/disk", "pvc/disk")


CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec:
  storageClassName: corral-wait
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Mi}}
"""


def test_a_claim_is_given_a_spare_of_a_warm_pool(cluster):
    """The controllers have the rights of an installation for it, and no others."""
    pool = yaml.safe_load((EXAMPLES / "warm-pool.yaml").read_text())
    template = manifest("testreplicaset.yaml", HOLLOW, "")["spec"]["template"]
    template["metadata"]["labels"] = {"app": "claimed"}
    pool["spec"] = {"replicas": 1, "template": template}
    cluster.create(pool)
    until("a spare is ready", lambda: is_true(cluster, "vmwp", "spares", "Ready"))
    cluster.create(yaml.safe_load((EXAMPLES / "claim.yaml").read_text()))
    until("the claim has its machine", lambda: is_true(cluster, "vmclaim", "job-7", "Ready"))
    name = cluster.get("vmclaim", "job-7")["status"]["vmi"]["name"]
    metadata = cluster.get("vmi", name)["metadata"]
    assert metadata["labels"]["app"] == "claimed"
    assert [each["kind"] for each in metadata["ownerReferences"]] == ["VirtualMachineClaim"]
    until("there is another spare", lambda: is_true(cluster, "vmwp", "spares", "Ready"))
    cluster.kubectl("delete", "vmclaim/job-7", "vmwp/spares")
    until("their machines are gone", lambda: not machines(cluster, "spares"))


def is_true(one: Separate, kind: str, name: str, condition: str) -> bool:
    conditions = one.get(kind, name).get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def test_the_agent_is_killed_and_goes_on_with_its_machines(cluster):
    before = set(machines(cluster, "test"))
    cluster.kill_and_restart_node(HOLLOW)
    cluster.kubectl("scale", "vmirs", "testreplicaset", "--replicas=7")
    until("seven are ready", lambda: is_settled(cluster, "vmirs", "testreplicaset", 7))
    assert before < set(machines(cluster, "test"))
    clients = [
        each for each in requests(cluster, HOLLOW) if each["spec"]["signerName"] == KUBELET_CLIENT
    ]
    assert len(clients) == 1, "it keeps its certificate"


def test_the_leader_is_killed_and_another_goes_on(cluster):
    leader = cluster.leader()
    before = created(cluster)
    leader.kill()
    cluster.kubectl("scale", "vmirs", "testreplicaset", "--replicas=9")
    until("another acts", lambda: len(machines(cluster, "test")) == 9)
    until("nine are ready", lambda: is_settled(cluster, "vmirs", "testreplicaset", 9))
    assert cluster.leader() is not leader
    assert created(cluster) == before + 2, "no VMI was created twice"
    cluster.controllers.remove(leader)
    again = cluster.start_controllers()
    until("there are two again", lambda: again.get("/readyz") == "ok")


def created(cluster: Separate) -> int:
    """Return the number of VMIs that the set has created, by its events."""
    return sum(
        each.get("count", 1)
        for each in cluster.items("events", "--field-selector=reason=SuccessfulCreate")
        if each["involvedObject"]["name"] == "testreplicaset"
    )


def test_every_process_reports_its_health(cluster):
    for each in cluster.controllers:
        until("it is ready", lambda each=each: each.get("/readyz") == "ok")
        assert each.get("/healthz") == "ok"
        assert "workqueue_depth" in each.get("/metrics")


def test_a_set_and_its_machines_are_deleted(cluster):
    cluster.kubectl("delete", "vmirs", "testreplicaset")
    cluster.kubectl("delete", "vmpool", "pool")
    until("all machines are gone", lambda: not cluster.items("vmi") and not cluster.items("pods"))


@pytest.fixture(scope="module")
def guest(cluster, demo_disk):
    """The VMI of a set on a node that runs QEMU."""
    data = ("--data-dir", str(cluster.directory / REAL))
    cluster.corral("image", "import", str(demo_disk), REFERENCE, *data)
    options = ("--network-backend", "none", "--boots", "1", *address(cluster, 2))
    cluster.start_node(REAL, *options)
    until("the node is ready", lambda: cluster.is_ready(REAL))
    document = manifest("testreplicaset.yaml", REAL, "real")
    document["spec"]["replicas"] = 1
    document["spec"]["template"]["metadata"]["name"] = "real"
    cluster.create(document)
    until("the guest is ready", lambda: is_settled(cluster, "vmirs", "real", 1))
    (vmi,) = machines(cluster, "real").values()
    yield vmi
    cluster.kubectl("delete", "vmirs", "real")
    until("the guest is gone", lambda: not cluster.items("vmi"))
    cluster.corral("down", *data)  # a node that ends leaves its network to the next one


def pod_of(cluster: Separate, vmi: dict) -> str:
    (pod,) = [
        each["metadata"]["name"]
        for each in cluster.items("pods")
        if each["metadata"]["labels"]["kubevirt.io/created-by"] == vmi["metadata"]["uid"]
    ]
    return pod


def test_the_serving_certificate_is_of_the_cluster(cluster, guest):
    if not cluster.is_ours:
        pytest.skip("who approves serving certificates is the cluster's choice")
    path = cluster.directory / REAL / "pki" / "kubelet.crt"
    until("the serving certificate is signed", path.exists)
    assert set(pki.certificate_hosts(path.read_bytes())) == {REAL, "127.0.0.2"}


def test_a_node_reads_images_of_another_and_nothing_else(cluster, guest):
    address = next(
        each["address"]
        for each in cluster.node(REAL)["status"]["addresses"]
        if each["type"] == "InternalIP"
    )
    other = cluster.directory / HOLLOW / "pki"
    tls = trusting()
    tls.load_cert_chain(other / "kubelet-client.crt", other / "kubelet-client.key")

    def status(path: str) -> int:
        port = cluster.nodes[REAL].port
        with contextlib.closing(HTTPSConnection(address, port, context=tls, timeout=60)) as asked:
            asked.request("GET", path)
            return asked.getresponse().status

    assert status(f"{IMAGES_PATH}?{urlencode({'reference': REFERENCE, 'file': ''})}") == 200
    assert status(f"/containerLogs/{cluster.namespace}/{pod_of(cluster, guest)}/compute") == 403
    assert status("/pods") == 403


def test_logs_come_through_the_api_server(cluster, guest):
    pod = pod_of(cluster, guest)
    until("the guest asks for a login", lambda: "login:" in cluster.kubectl("logs", pod))


def test_commands_run_through_the_api_server(cluster, guest):
    pod = pod_of(cluster, guest)
    until("the agent is connected", lambda: has_agent(cluster))
    assert cluster.kubectl("exec", pod, "--", "hostname").strip() == guest["metadata"]["name"]


def test_ports_are_forwarded_through_the_api_server(cluster, guest):
    command = [KUBECTL, "-n", cluster.namespace, "port-forward", pod_of(cluster, guest), ":80"]
    with subprocess.Popen(
        command, env=cluster.environment(), stdout=subprocess.PIPE, text=True
    ) as forward:
        try:
            (port,) = re.findall(r":(\d+) -> 80", forward.stdout.readline())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                assert answer.read().decode().strip() == guest["metadata"]["name"]
        finally:
            forward.terminate()


def has_agent(cluster: Separate) -> bool:
    return any(
        each["type"] == "AgentConnected" and each["status"] == "True"
        for vmi in cluster.items("vmi")
        for each in vmi["status"].get("conditions", ())
    )


def test_the_console_comes_through_the_api_server(cluster, guest):
    name = guest["metadata"]["name"]
    command = cluster.corral_command("console", name, "-n", cluster.namespace)
    terminal = Terminal(command, cluster.environment())
    terminal.read_until(b"Successfully connected")
    terminal.type(b"\n")
    terminal.read_until(b"login:")
    terminal.type(b"\x1d")
    assert terminal.end() == 0
