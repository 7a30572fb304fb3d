"""The RBAC rules of an installation: what its processes need, and no more."""

import pytest

from corral import controllers as own
from corral.api.kinds.core.machine_nodes import MACHINE_NODES
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.daemon.install import rbac
from corral.daemon.install.options import Options
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

DOCUMENTS = list(rbac.documents(Options()))


def rules(name):
    """The rules of a ClusterRole."""
    (found,) = [
        each for each in DOCUMENTS
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name
    ]  # fmt: skip
    return found["rules"]


def may(name, verb, group, resource):
    return any(
        verb in each["verbs"] and group in each["apiGroups"] and resource in each["resources"]
        for each in rules(name)
        if not each.get("resourceNames")
    )


async def watched():
    """Return the resources that our controllers list and watch."""
    store = Store.in_memory()
    client = Client(InProcess(ApiServer(store).handle, ADMINISTRATOR))
    context = ControllerContext(client)
    own.controllers(context, cpu_ratio=10, placement=MACHINE_NODES)
    for make in own.SOURCES.values():
        make(context)
    found = context.informers.unsynced()
    await store.close()
    return found


async def test_controllers_may_list_and_watch_cached_kinds():
    resources = await watched()
    assert "resourcequotas" in resources
    assert len(resources) > 10
    for each in resources:
        resource, _, group = each.partition(".")
        for verb in ("list", "watch"):
            assert may(rbac.CONTROLLERS_ROLE, verb, group, resource), f"{verb} {each}"


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("", "nodes"),
        ("", "pods"),
        ("", "services"),
        ("", "serviceaccounts"),
        ("", "persistentvolumeclaims"),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.k8s.io", "networkpolicies"),
        ("kubevirt.io", "virtualmachineinstances"),
    ],
)
def test_nodes_may_read_kinds_that_the_node_authorizer_denies(group, resource):
    assert may(rbac.NODES_ROLE, "list", group, resource)
    assert may(rbac.NODES_ROLE, "watch", group, resource)


def test_no_role_grants_secrets_of_users():
    for name in (rbac.CONTROLLERS_ROLE, rbac.NODES_ROLE, rbac.PROVISIONER_ROLE):
        assert not any(may(name, verb, "", "secrets") for verb in ("get", "list", "watch"))


def test_the_provisioner_writes_claims_as_an_account():
    subjects = [
        each["subjects"]
        for each in DOCUMENTS
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] == rbac.PROVISIONER_ROLE
    ]
    account = {"kind": "ServiceAccount", "name": "corral-node", "namespace": "corral-system"}
    assert subjects == [[account]]
    for resource in ("persistentvolumeclaims", "persistentvolumeclaims/status"):
        assert may(rbac.PROVISIONER_ROLE, "patch", "", resource)


@pytest.mark.parametrize("resource", ["persistentvolumes", "persistentvolumeclaims"])
@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_no_kubelet_writes_volumes_or_claims(verb, resource):
    assert not may(rbac.NODES_ROLE, verb, "", resource)
    assert not may(rbac.NODES_ROLE, verb, "", f"{resource}/status")


def test_nodes_may_read_images_of_each_other_and_no_other_path():
    assert rules(rbac.IMAGES_ROLE) == [{"nonResourceURLs": ["/corral/images"], "verbs": ["get"]}]
    bound = [
        subject["name"]
        for each in DOCUMENTS
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] == rbac.IMAGES_ROLE
        for subject in each["subjects"]
    ]
    assert bound == ["system:nodes"]
