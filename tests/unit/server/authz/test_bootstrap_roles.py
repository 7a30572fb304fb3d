"""Tests of the roles that every cluster has, and of how they are kept as they should be."""

import pytest
from tests.unit.server.authz.test_authorizer import RBAC, bind, user
from tests.unit.server.conftest import reconcile_roles

from corral.api.request import User
from corral.daemon.rbac.reconcile import BINDINGS, ROLES
from corral.server.authz import Attributes

ROLE = f"{RBAC}/clusterroles"
BINDING = f"{RBAC}/clusterrolebindings"


def may(ask, verb, target, group="", *, namespace="default"):
    resource, _, subresource = target.partition("/")
    attributes = Attributes(User(name="eve"), verb, group, resource, subresource, namespace, "x")
    return ask.server.authorizer.allows(attributes)


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        (
            "view",
            ["get pods", "list virtualmachines.kubevirt.io", "get datavolumes.cdi.kubevirt.io",
             "list virtualmachinepools.pool.kubevirt.io", "get namespaces",
             "list virtualmachinewarmpools.corral.dev",
             "get virtualmachinewarmpools/scale.corral.dev",
             "list pods.metrics.k8s.io",
             "get virtualmachineinstances/guestosinfo.subresources.kubevirt.io"],
            ["get secrets", "create pods", "get roles.rbac.authorization.k8s.io",
             "patch virtualmachinewarmpools.corral.dev",
             "get virtualmachineinstances/console.subresources.kubevirt.io", "get pods/exec"],
        ),
        (
            "edit",
            ["create pods", "get secrets", "create pods/exec", "update virtualmachines.kubevirt.io",
             "get virtualmachineinstances/vnc.subresources.kubevirt.io",
             "update virtualmachines/start.subresources.kubevirt.io", "impersonate serviceaccounts",
             "create uploadtokenrequests.upload.cdi.kubevirt.io",
             "create horizontalpodautoscalers.autoscaling", "get pods.metrics.k8s.io",
             "create virtualmachinewarmpools.corral.dev",
             "create virtualmachineclaims.corral.dev",
             "patch virtualmachinewarmpools/scale.corral.dev"],
            ["get virtualmachineinstances/vnc/screenshot.subresources.kubevirt.io",
             "update virtualmachineinstancereplicasets/scale.kubevirt.io",
             "deletecollection virtualmachines.kubevirt.io", "create resourcequotas",
             "create rolebindings.rbac.authorization.k8s.io", "create nodes",
             "create virtualmachineinstancemigrations.kubevirt.io",
             "update virtualmachines/migrate.subresources.kubevirt.io"],
        ),
        (
            "admin",
            ["create rolebindings.rbac.authorization.k8s.io",
             "deletecollection virtualmachines.kubevirt.io",
             "get virtualmachineinstances/vnc/screenshot.subresources.kubevirt.io",
             "update virtualmachines/removememorydump.subresources.kubevirt.io",
             "create localsubjectaccessreviews.authorization.k8s.io"],
            ["create clusterroles.rbac.authorization.k8s.io", "update namespaces",
             "update virtualmachinepools/scale.pool.kubevirt.io", "create resourcequotas"],
        ),
        (
            "kubevirt.io:migrate",
            ["create virtualmachineinstancemigrations.kubevirt.io",
             "update virtualmachines/migrate.subresources.kubevirt.io"],
            ["get virtualmachines.kubevirt.io"],
        ),
        ("cluster-admin", ["anything things.example.com", "get pods/exec"], []),
    ],
)  # fmt: skip
async def test_rights_of_the_user_facing_roles(ask, policy, role, allowed, refused):
    await bind(ask, "eves", "ClusterRole", role, user("eve"))
    for right, answer in [*((each, True) for each in allowed), *((one, False) for one in refused)]:
        verb, _, what = right.partition(" ")
        target, _, group = what.partition(".")
        assert may(ask, verb, target, group) is answer, right
        assert not may(ask, verb, target, group, namespace="other")


async def test_rights_of_all_users(ask, policy):
    bob, nobody = ask.as_user("bob"), ask.as_user("x")
    for path in ("/api", "/apis/kubevirt.io/v1", "/openapi/v3", "/version", "/healthz"):
        assert (await bob("GET", path)).status == 200
    for path in ("/metrics", "/api/v1/nodes", "/api/v1/namespaces"):
        assert (await nobody("GET", path)).status == 403
    types = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes"
    assert (await bob("GET", types)).status == 200
    assert (await bob("GET", "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs")).status == 200
    assert (await bob("GET", "/apis/kubevirt.io/v1/kubevirts")).status == 200
    assert (await bob("GET", "/apis/kubevirt.io/v1/kubevirts?watch=true")).status == 403
    prometheus = ask.as_user("system:serviceaccount:monitoring:prometheus")
    assert (await prometheus("GET", "/metrics")).status == 200
    assert (await ask.as_user("eve", "system:monitoring")("GET", "/metrics")).status == 200


async def test_default_roles_are_created_once(ask, policy):
    answer = await ask("GET", ROLE)
    assert answer.names == sorted(role["metadata"]["name"] for role in ROLES)
    assert (await ask("GET", BINDING)).names == sorted(
        each["metadata"]["name"] for each in BINDINGS
    )
    assert all(role["rules"] for role in answer["items"])
    revision = ask.server.store.revision
    await reconcile_roles(ask)
    assert ask.server.store.revision == revision


async def test_extension_apiserver_authentication_reader_can_read_its_config_map(ask, policy):
    name = "extension-apiserver-authentication-reader"
    await ask.create("/api/v1/namespaces", "kube-system")
    await reconcile_roles(ask)
    await bind(ask, name, "Role", name, user("eve"), namespace="kube-system")
    place = "/api/v1/namespaces/kube-system/configmaps"
    assert (await ask.as_user("eve")("GET", f"{place}/others")).status == 403
    answer = await ask.as_user("eve")("GET", f"{place}/extension-apiserver-authentication")
    assert answer.status == 404  # whose making is not of this test
    revision = ask.server.store.revision
    await reconcile_roles(ask)
    assert ask.server.store.revision == revision


async def test_removed_rules_are_restored_and_added_ones_stay(ask, policy):
    extra = {"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["things"]}
    lacking = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    await ask.patch(f"{ROLE}/system:aggregate-to-view", {"rules": [extra, lacking]})
    await ask.patch(
        f"{BINDING}/system:discovery",
        {"subjects": [user("eve") | {"apiGroup": "rbac.authorization.k8s.io"}]},
    )
    await ask("DELETE", f"{BINDING}/system:basic-user")
    await ask("DELETE", f"{ROLE}/kubevirt.io:edit")
    await reconcile_roles(ask)
    await bind(ask, "eves", "ClusterRole", "view", user("eve"))
    assert may(ask, "list", "services")
    assert may(ask, "get", "things", "example.com")
    subjects = (await ask("GET", f"{BINDING}/system:discovery"))["subjects"]
    assert [each["name"] for each in subjects] == ["eve", "system:authenticated"]
    assert (await ask("GET", f"{BINDING}/system:basic-user")).status == 200
    await bind(ask, "more", "ClusterRole", "edit", user("eve"))
    assert may(ask, "create", "virtualmachines", "kubevirt.io")


async def test_roles_without_autoupdate_are_left_alone(ask, policy):
    path = f"{BINDING}/system:discovery"
    off = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    await ask.patch(path, {"metadata": {"annotations": off}, "subjects": None})
    await reconcile_roles(ask)
    assert "subjects" not in (await ask("GET", path)).document
    assert (await ask.as_user("bob")("GET", "/api")).status == 403


async def test_a_binding_to_another_role_is_replaced(ask, policy):
    path = f"{BINDING}/system:monitoring"
    await ask("DELETE", path)
    reference = {"kind": "ClusterRole", "name": "cluster-admin"}
    await ask.create(BINDING, "system:monitoring", roleRef=reference, subjects=[user("eve")])
    await reconcile_roles(ask)
    binding = await ask("GET", path)
    assert binding["roleRef"]["name"] == "system:monitoring"
    assert [each["name"] for each in binding["subjects"]] == ["system:monitoring"]
