"""Tests of what nodes of other hosts may read and write."""

import pytest
from tests.unit.server.conftest import CLAIMS, MACHINES, MAPS, PODS, Outside

from corral.api.kinds import KINDS
from corral.api.request import User

NODES = "/api/v1/nodes"
SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
VOLUMES = "/api/v1/persistentvolumes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LABELS = {"metadata": {"labels": {"seen": "yes"}}}
SELECTED = "?labelSelector=kubevirt.io/nodeName="
COMPUTE = {"containers": [{"name": "compute", "image": "i"}]}


OF_OTHERS = {
    "endpoints": "get list",
    "endpointslices.discovery.k8s.io": "get list",
    "events": "create update patch",
    "events.events.k8s.io": "create update patch",
    "namespaces": "get list",
    "networkpolicies.networking.k8s.io": "get list",
    "nodes": "get list create",
    "persistentvolumeclaims": "get list",
    "persistentvolumes": "get list create",
    "pods": "get list",
    "services": "get list",
    "storageclasses.storage.k8s.io": "get list",
    "virtualmachinecheckpoints.corral.dev": "get list",
}
"""All that a node may do to objects that are not its own: what networks and volumes are made from.

Creation of Nodes and volumes is the authorizer's word alone: NodeRestriction permits its own ones.
"""


def node(ask, name):
    """A node's way to the server, by its certificate."""
    groups = ("system:nodes", "system:authenticated")
    return Outside(ask.server, User(name=f"system:node:{name}", groups=groups))


async def place(ask, name, on):
    """Create an instance that names a Secret, a ConfigMap and an account, and its pod on a node."""
    kinds = {
        "secret": {"secretName": name},
        "configMap": {"name": name},
        "serviceAccount": {"serviceAccountName": name},
    }
    volumes = [{"name": kind.lower(), kind: source} for kind, source in kinds.items()]
    disks = [{"name": each["name"], "disk": {}} for each in volumes]
    domain = {"devices": {"disks": disks}, "memory": {"guest": "64M"}}
    spec = {"domain": domain, "volumes": volumes}
    made = await ask.create(MACHINES, name, spec=spec)
    labels = {"kubevirt.io/created-by": made["metadata"]["uid"]}
    await ask.create(PODS, f"pod-{name}", labels=labels, spec={**COMPUTE, "nodeName": on})
    await ask.create(SECRETS, name, stringData={"a": "b"})
    await ask.create(MAPS, name, data={"a": "b"})
    await ask.create(ACCOUNTS, name)


@pytest.fixture
async def cluster(ask):
    """Two nodes with an instance each."""
    await ask.create("/api/v1/namespaces", "kube-node-lease")
    for name in ("n1", "n2"):
        await ask.create(NODES, name, labels={"kubernetes.io/hostname": name})
        await ask.create(LEASES, name)
        await place(ask, f"on-{name}", name)
    return ask


@pytest.mark.parametrize("collection", [SECRETS, MAPS, ACCOUNTS, MACHINES])
async def test_a_node_reads_objects_named_by_its_vmis(cluster, collection):
    n1 = node(cluster, "n1")
    assert (await n1("GET", f"{collection}/on-n1")).status == 200
    assert (await n1("GET", f"{collection}/on-n2")).status == 403
    assert (await n1("GET", collection)).status == 403
    assert (await n1("GET", f"{collection}?fieldSelector=metadata.name=on-n2")).status == 403


async def test_a_node_reads_nothing_of_a_vmi_that_ended_there(cluster):
    n1, status = node(cluster, "n1"), {"status": {"phase": "Succeeded"}}
    assert (await cluster.patch(f"{PODS}/pod-on-n1/status", status)).status == 200
    assert (await n1("GET", f"{SECRETS}/on-n1")).status == 403
    assert (await n1("GET", f"{MACHINES}/on-n1")).status == 403


async def test_a_node_reads_nothing_of_a_deleted_vmi(cluster):
    n1 = node(cluster, "n1")
    assert (await n1("GET", f"{SECRETS}/on-n1")).status == 200
    await cluster("DELETE", f"{PODS}/pod-on-n1?gracePeriodSeconds=0")
    assert (await n1("GET", f"{SECRETS}/on-n1")).status == 403


async def test_a_node_writes_the_status_of_checkpoints_of_its_own_vmis(cluster):
    checkpoints = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinecheckpoints"
    for name in ("n1", "n2"):
        spec = {"source": {"kind": "VirtualMachineInstance", "name": f"on-{name}"}}
        await cluster.create(checkpoints, f"of-{name}", spec=spec)
    n1, headers = node(cluster, "n1"), {"content-type": "application/merge-patch+json"}
    status = {"status": {"nodeName": "n1"}}
    assert (await n1("PATCH", f"{checkpoints}/of-n1/status", status, headers)).status == 200
    assert (await n1("PATCH", f"{checkpoints}/of-n1", status, headers)).status == 403
    assert (await n1("PATCH", f"{checkpoints}/of-n2/status", status, headers)).status == 403


async def test_a_checkpoint_of_a_node_is_no_other_nodes_when_its_source_has_moved(cluster):
    checkpoints = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinecheckpoints"
    spec = {"source": {"kind": "VirtualMachineInstance", "name": "on-n1"}}
    await cluster.create(checkpoints, "moved", spec=spec)
    headers = {"content-type": "application/merge-patch+json"}
    path, made = f"{checkpoints}/moved/status", {"status": {"nodeName": "n2"}}
    assert (await cluster("PATCH", path, made, headers)).status == 200
    digest = {"status": {"digest": "sha256:0"}}
    assert (await node(cluster, "n1")("PATCH", path, digest, headers)).status == 403
    assert (await node(cluster, "n2")("PATCH", path, digest, headers)).status == 200


async def test_secrets_of_the_same_name_in_other_namespaces_are_not_readable(cluster):
    await cluster.create("/api/v1/namespaces", "other")
    other = SECRETS.replace("default", "other")
    await cluster.create(other, "on-n1", stringData={"a": "b"})
    assert (await node(cluster, "n1")("GET", f"{other}/on-n1")).status == 403


async def test_a_node_lists_vmis_by_its_label_only(cluster):
    n1 = node(cluster, "n1")
    assert (await n1("GET", f"{MACHINES}{SELECTED}n1")).status == 200
    for selector in ("n2", "n1,a!=b", ""):
        assert (await n1("GET", f"{MACHINES}{SELECTED}{selector}")).status == 403


async def test_a_node_lists_the_vmis_that_migrate_to_it(cluster):
    n1 = node(cluster, "n1")
    target = "?labelSelector=kubevirt.io/migrationTargetNodeName="
    assert (await n1("GET", f"{MACHINES}{target}n1")).status == 200
    assert (await n1("GET", f"{MACHINES}{target}n2")).status == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", f"{NODES}/{{}}", LABELS),
        ("PATCH", f"{NODES}/{{}}/status", LABELS),
        ("PATCH", f"{LEASES}/{{}}", LABELS),
        ("PATCH", f"{MACHINES}/on-{{}}", LABELS),
        ("PATCH", f"{PODS}/pod-on-{{}}/status", {"status": {"phase": "Running"}}),
        ("DELETE", f"{PODS}/pod-on-{{}}", None),
    ],
)
async def test_a_node_writes_its_own_objects(cluster, method, path, body):
    n1 = node(cluster, "n1")
    headers = {"content-type": "application/merge-patch+json"} if body else {}
    assert (await n1(method, path.format("n2"), body, headers)).status == 403
    assert (await n1(method, path.format("n1"), body, headers)).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", f"{NODES}/n2"),
        ("DELETE", f"{LEASES}/n1"),
        ("POST", PODS),
        ("POST", MACHINES),
        ("DELETE", f"{MACHINES}/on-n1"),
        ("POST", SECRETS),
        ("PUT", f"{SECRETS}/on-n1"),
        ("POST", f"{PODS}/pod-on-n1/eviction"),
        ("POST", f"{PODS}/pod-on-n1/binding"),
        ("PATCH", f"{PODS}/pod-on-n1"),
        ("POST", f"{ACCOUNTS}/on-n2/token"),
        ("POST", CLAIMS),
        ("GET", "/metrics"),
    ],
)
async def test_a_node_has_no_other_rights(cluster, method, path):
    assert (await node(cluster, "n1")(method, path, {})).status == 403


@pytest.mark.parametrize("name", ["anna", "system:node:n1"])
async def test_only_members_of_system_nodes_are_nodes(cluster, name):
    user = Outside(cluster.server, User(name=name, groups=("system:authenticated",)))
    assert (await user("GET", f"{SECRETS}/on-n1")).status == 403


def volume(label, value, claim="chosen"):
    terms = [{"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}]
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    return {"metadata": {"name": f"{value}-volume"}, "spec": spec}


async def make_claim(cluster, name, selected):
    """Create a claim that selects a node."""
    metadata = {"name": name, "annotations": {"volume.kubernetes.io/selected-node": selected}}
    requests = {"resources": {"requests": {"storage": "1Gi"}}}
    spec = {"accessModes": ["ReadWriteOnce"], **requests}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    assert (await cluster("POST", claims, {"metadata": metadata, "spec": spec})).status == 201


async def test_a_node_writes_volumes_of_its_own_storage_only(cluster):
    n1 = node(cluster, "n1")
    await make_claim(cluster, "chosen", "n1")
    await make_claim(cluster, "others", "n2")
    for claim in ("", "missing", "others"):
        foreign = volume("kubernetes.io/hostname", "n1", claim)
        assert (await n1("POST", VOLUMES, foreign)).status == 403
    assert (await n1("POST", VOLUMES, volume("kubernetes.io/hostname", "n1"))).status == 201
    assert (await n1("POST", VOLUMES, volume("kubernetes.io/hostname", "n2"))).status == 403
    for name in ("n1", "n2"):
        await cluster.patch(f"{NODES}/{name}", {"metadata": {"labels": {"zone": "a"}}})
    assert (await n1("POST", VOLUMES, volume("zone", "a"))).status == 403
    assert (await cluster("POST", VOLUMES, volume("kubernetes.io/hostname", "n2"))).status == 201
    assert (await n1("DELETE", f"{VOLUMES}/n2-volume")).status == 403
    assert (await n1("DELETE", f"{VOLUMES}/n1-volume")).status == 200


def collections():
    """The path of each built-in resource, with its name and group."""
    for kind in KINDS:
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        namespace = "/namespaces/default" if kind.namespaced else ""
        yield f"{kind.plural}.{kind.group}".rstrip("."), f"{root}{namespace}/{kind.plural}"


async def permitted(send):
    """What a node may do to objects of others, or of all: by resource."""
    found = {}
    for resource, path in collections():
        tried = {
            "get": ("GET", f"{path}/on-n2"),
            "list": ("GET", path),
            "create": ("POST", path),
            "update": ("PUT", f"{path}/on-n2"),
            "patch": ("PATCH", f"{path}/on-n2"),
            "delete": ("DELETE", f"{path}/on-n2"),
            "deletecollection": ("DELETE", path),
        }
        for verb, (method, target) in tried.items():
            headers = {"content-type": "application/merge-patch+json"} if verb == "patch" else {}
            body = {} if method in ("POST", "PUT", "PATCH") else None
            if (await send(method, target, body, headers)).status != 403:
                found.setdefault(resource, []).append(verb)
    return {resource: " ".join(verbs) for resource, verbs in found.items()}


async def test_the_rights_of_a_node_over_objects_of_others_are_these(cluster):
    assert await permitted(node(cluster, "n1")) == OF_OTHERS
