"""A node whose client certificate was stolen reaches nothing of other nodes."""

import base64

import pytest
from bench.cluster import trusting, vmi
from tests.cluster import until
from tests.hosts import API_PORT, HOLLOW, KUBELET_PORT, certificate_of

from corral import pki
from corral.api.images import IMAGES_PATH

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CORE = "/api/v1/namespaces/default"
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
SUBRESOURCES = VMIS.replace("kubevirt.io", "subresources.kubevirt.io")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SELECTED = "?labelSelector=kubevirt.io%2FnodeName%3D"
TOKEN = {"spec": {"audiences": ["api"]}}
LABELS = {"metadata": {"labels": {"seen": "yes"}}}
BINDING = {
    "metadata": {"name": "thief"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
    "subjects": [{"kind": "User", "name": "system:node:host2"}],
}


def instance(name, node):
    """An instance on a node, which names a Secret, a ConfigMap and a ServiceAccount."""
    document = vmi(name)
    spec = document["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["volumes"] += [
        {"name": "secret", "secret": {"secretName": f"of-{name}"}},
        {"name": "config", "configMap": {"name": f"of-{name}"}},
        {"name": "account", "serviceAccount": {"serviceAccountName": f"of-{name}"}},
    ]
    disks = spec["domain"]["devices"]["disks"]
    disks += [{"name": each, "disk": {}} for each in ("secret", "config", "account")]
    return document


@pytest.fixture(scope="module")
def target(hollow):
    """Three nodes, with an instance on each of the first two; host2 is the hostile one."""
    hollow.join(hollow.hosts[2], *HOLLOW)
    call = hollow.api.one.call
    for name, node in (("victim", "host1"), ("own", "host2")):
        metadata = {"metadata": {"name": f"of-{name}"}}
        call("POST", f"{CORE}/secrets", metadata | {"stringData": {"a": "b"}})
        call("POST", f"{CORE}/configmaps", metadata | {"data": {"a": "b"}})
        call("POST", f"{CORE}/serviceaccounts", metadata)
        call("POST", VMIS, instance(name, node))
    until("both run", lambda: phases(hollow) == {"victim": "Running", "own": "Running"})
    return hollow


def phases(site):
    found = site.api.items("vmi")
    return {each["metadata"]["name"]: each.get("status", {}).get("phase") for each in found}


@pytest.fixture(scope="module")
def thief(target):
    """Sends requests with the certificate of host2; answers the status."""
    host = target.hosts[1]
    tls = certificate_of(host)

    def send(method, path, body=None, **options):
        url = (target.first.address, API_PORT)
        return host.request(url, method, path, body, tls=tls, **options)[0]

    return send


def pod_of(site, name):
    found = site.api.items("pods")
    return next(
        each["metadata"]["name"]
        for each in found
        if each["metadata"]["name"].startswith(f"virt-launcher-{name}-")
    )


def test_a_node_can_read_its_own_objects(thief):
    for path in (f"{CORE}/secrets/of-own", f"{CORE}/configmaps/of-own", f"{VMIS}/own"):
        assert thief("GET", path) == 200, path
    assert thief("GET", f"/apis/kubevirt.io/v1/virtualmachineinstances{SELECTED}host2") == 200
    assert thief("PATCH", "/api/v1/nodes/host2", LABELS) == 200


@pytest.mark.parametrize(
    "path",
    [
        f"{CORE}/secrets/of-victim",
        f"{CORE}/secrets",
        f"{CORE}/secrets?fieldSelector=metadata.name%3Dof-victim",
        "/api/v1/secrets",
        "/api/v1/secrets?watch=true&timeoutSeconds=1",
        "/api/v1/namespaces/kube-system/secrets",
        f"{CORE}/configmaps/of-victim",
        "/api/v1/configmaps",
        f"{CORE}/serviceaccounts/of-victim",
        "/api/v1/serviceaccounts",
        f"{VMIS}/victim",
        VMIS,
        "/apis/kubevirt.io/v1/virtualmachineinstances",
        f"/apis/kubevirt.io/v1/virtualmachineinstances{SELECTED}host1",
        f"/apis/kubevirt.io/v1/virtualmachineinstances{SELECTED}host2,a%21%3Db",
        "/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&timeoutSeconds=1",
        f"{LEASES}/host1",
        "/api/v1/nodes/host1/proxy/pods",
        "/api/v1/nodes/host1/proxy/metrics/resource",
        f"{SUBRESOURCES}/victim/console",
        f"{SUBRESOURCES}/victim/guestosinfo",
        "/metrics",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ],
)
def test_a_node_cannot_read_objects_of_others(thief, path):
    assert thief("GET", path) == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/nodes/host1/proxy/exec/default/x/compute?command=id", None),
        ("PATCH", "/api/v1/nodes/host1", LABELS),
        ("PATCH", "/api/v1/nodes/host1/status", {"status": {"conditions": []}}),
        ("DELETE", "/api/v1/nodes/host1", None),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "host9"}}),
        ("PATCH", "/api/v1/nodes/host2", {"spec": {"taints": []}, "metadata": {"labels": {
            "node-restriction.kubernetes.io/trusted": "yes"}}}),
        ("PATCH", "/api/v1/nodes/host2", {"spec": {"podCIDRs": ["10.244.0.0/17"]}}),
        ("PATCH", f"{LEASES}/host1", {"spec": {"renewTime": None}}),
        ("DELETE", f"{LEASES}/host1", None),
        ("POST", LEASES, {"metadata": {"name": "host9"}}),
        ("PATCH", f"{VMIS}/victim", LABELS),
        ("DELETE", f"{VMIS}/victim", None),
        ("DELETE", f"{VMIS}/own", None),
        ("PATCH", f"{VMIS}/own", {"spec": {"terminationGracePeriodSeconds": 1}}),
        ("PATCH", f"{VMIS}/own", {"status": {"nodeName": "host1"}}),
        ("POST", VMIS, vmi("new")),
        ("PUT", f"{SUBRESOURCES}/victim/pause", {}),
        ("POST", f"{CORE}/pods", {"metadata": {"name": "new"}, "spec": {"containers": []}}),
        ("POST", f"{CORE}/serviceaccounts/of-victim/token", TOKEN),
        ("POST", f"{CORE}/serviceaccounts/default/token", TOKEN),
        ("PATCH", f"{CORE}/secrets/of-own", {"stringData": {"a": "c"}}),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", BINDING),
        ("POST", "/api/v1/namespaces/kube-system/secrets", {"metadata": {"name": "token"}}),
        ("PATCH", "/api/v1/namespaces/kube-system/configmaps/corral-network", {"data": {}}),
    ],
)  # fmt: skip
def test_a_node_cannot_write_objects_of_others(thief, method, path, body):
    assert thief(method, path, body) == 403


@pytest.mark.parametrize("subresource", ["", "/status", "/eviction", "/binding"])
def test_pods_of_other_nodes_cannot_be_written(target, thief, subresource):
    path = f"{CORE}/pods/{pod_of(target, 'victim')}{subresource}"
    method = "POST" if subresource in ("/eviction", "/binding") else "PATCH"
    assert thief(method, path, LABELS) == 403
    if not subresource:
        assert thief("DELETE", path) == 403
        assert thief("GET", f"{path}/log") == 403
        assert thief("GET", f"{path}/exec?command=id&stdout=true") == 403


@pytest.mark.parametrize("node", ["host1", "host3", "host9"])
def test_volumes_of_other_nodes_cannot_be_created(thief, node):
    terms = [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]  # fmt: skip
    volume = {
        "metadata": {"name": f"at-{node}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/etc"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    assert thief("POST", "/api/v1/persistentvolumes", volume) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "system:node:host1", "Impersonate-Group": "system:nodes"},
        {"Impersonate-User": "kubernetes-admin", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:kube-system:default"},
    ],
)
def test_a_node_cannot_impersonate(thief, headers):
    assert thief("GET", f"{CORE}/secrets/of-victim", headers=headers) == 403


@pytest.mark.parametrize(
    ("user", "groups", "hosts", "signer", "usage"),
    [
        ("system:node:host1", ("system:nodes",), (), "kube-apiserver-client-kubelet", "client"),
        ("system:node:host1", ("system:nodes",), ("198.51.100.1",), "kubelet-serving", "server"),
        ("system:node:host2", ("system:nodes",), ("198.51.100.1",), "kubelet-serving", "server"),
        ("system:node:host2", ("system:nodes",), ("kubernetes",), "kubelet-serving", "server"),
        ("kubernetes-admin", ("system:masters",), (), "kube-apiserver-client", "client"),
    ],
)
def test_a_node_cannot_get_the_certificate_of_another(
    target, thief, user, groups, hosts, signer, usage
):
    _, request = pki.new_request(user, groups, hosts)
    name = f"{user.replace(':', '-')}-{signer}-{len(hosts)}{hosts[-1:] == ('kubernetes',)}".lower()
    document = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": f"kubernetes.io/{signer}",
            "usages": ["digital signature", f"{usage} auth"],
        },
    }
    status = thief("POST", REQUESTS, document)
    if status == 201:
        approval = {"status": {"conditions": [
            {"type": "Approved", "status": "True", "reason": "Mine"}]}}  # fmt: skip
        assert thief("PATCH", f"{REQUESTS}/{name}/approval", approval) == 403
        found = target.api.one.call("GET", f"{REQUESTS}/{name}")["status"]
        assert "certificate" not in found
        assert not any(each["type"] == "Approved" for each in found.get("conditions", ()))
    else:
        assert status in (400, 403), status


def test_the_kubelet_of_another_node_rejects_it(target):
    other = target.hosts[2]
    stolen = certificate_of(target.hosts[1])
    pod = pod_of(target, "victim")
    for path in (
        "/pods",
        "/metrics",
        "/metrics/resource",
        "/stats/summary",
        "/containerLogs/default/x/compute",
        f"/exec/default/{pod}/compute?command=id&output=1",
        f"/portForward/default/{pod}",
        "/uploads/",
        f"{IMAGES_PATH}/../pods",
    ):
        url = (other.address, KUBELET_PORT)
        assert target.hosts[1].request(url, "GET", path, tls=stolen)[0] == 403, path
        assert target.hosts[1].request(url, "GET", path, tls=trusting())[0] == 401, path
    headers = {"Authorization": "Bearer of-nobody"}
    answer = target.hosts[1].request(url, "GET", "/", tls=trusting(), headers=headers)
    assert answer[0] == 401
