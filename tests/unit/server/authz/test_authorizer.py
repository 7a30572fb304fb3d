"""Tests of who may what, by the roles and bindings of a store as they come and go."""

import pytest
from tests.unit.server.conftest import MAPS, Asker

from corral.api.errors import Forbidden
from corral.api.object import Key
from corral.api.request import User
from corral.server.authz import Attributes, Authorizer
from corral.store import Store
from corral.store.memory import Retention

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BOB = User(name="bob", groups=("devs", "system:authenticated"))


def rule(verbs, resources, **fields):
    return {
        "verbs": verbs.split(),
        "apiGroups": [""],
        "resources": resources.split(),
        **fields,
    }


def user(name):
    return {"kind": "User", "name": name}


def group(name):
    return {"kind": "Group", "name": name}


async def role(ask, name, *rules, namespace="default"):
    scope = f"namespaces/{namespace}/roles" if namespace else "clusterroles"
    return await ask.create(f"{RBAC}/{scope}", name, rules=list(rules))


async def bind(ask, name, kind, to, *subjects, namespace="default"):
    scope = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    reference = {"kind": kind, "name": to}
    return await ask.create(f"{RBAC}/{scope}", name, roleRef=reference, subjects=list(subjects))


def attributes(verb="get", resource="pods", namespace="default", **more):
    return Attributes(BOB, verb, "", resource, namespace=namespace, **more)


async def test_a_role_binding_grants_rights_in_its_namespace_only(ask):
    bob = ask.as_user("bob")
    assert (await bob("GET", MAPS)).status == 403
    await role(ask, "reader", rule("get list", "configmaps"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    assert (await bob("GET", MAPS)).status == 200
    assert (await bob("POST", MAPS, {"metadata": {"name": "x"}})).status == 403
    assert (await bob("GET", "/api/v1/configmaps")).status == 403
    assert (await bob("GET", "/api/v1/namespaces/other/configmaps")).status == 403
    assert (await ask.as_user("eve")("GET", MAPS)).status == 403


async def test_a_cluster_role_grants_rights_where_it_is_bound(ask):
    await role(ask, "reader", rule("get list", "configmaps nodes"), namespace="")
    await bind(ask, "devs", "ClusterRole", "reader", group("devs"))
    within = ask.as_user("bob", "devs")
    assert (await within("GET", MAPS)).status == 200
    assert (await within("GET", "/api/v1/configmaps")).status == 403
    assert (await within("GET", "/api/v1/nodes")).status == 403
    await bind(ask, "ops", "ClusterRole", "reader", group("ops"), namespace="")
    everywhere = ask.as_user("bob", "ops")
    assert (await everywhere("GET", "/api/v1/configmaps")).status == 200
    assert (await everywhere("GET", "/api/v1/nodes")).status == 200


async def test_subjects_may_omit_the_namespace_of_a_service_account(ask):
    await role(ask, "reader", rule("list", "configmaps"))
    near = {"kind": "ServiceAccount", "name": "near"}
    far = {"kind": "ServiceAccount", "name": "far", "namespace": "other"}
    await bind(ask, "robots", "Role", "reader", near, far)
    for name, status in (
        ("default:near", 200),
        ("other:far", 200),
        ("default:far", 403),
        ("other:near", 403),
    ):
        robot = ask.as_user(f"system:serviceaccount:{name}")
        assert (await robot("GET", MAPS)).status == status, name


async def test_changes_of_roles_take_effect_at_once(ask):
    bob = ask.as_user("bob")
    await role(ask, "reader", rule("get", "configmaps"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    assert (await bob("GET", MAPS)).status == 403
    await ask.patch(
        f"{RBAC}/namespaces/default/roles/reader", {"rules": [rule("list", "configmaps")]}
    )
    assert (await bob("GET", MAPS)).status == 200
    binding = f"{RBAC}/namespaces/default/rolebindings/bobs"
    await ask.patch(binding, {"subjects": [user("eve") | {"apiGroup": RBAC[6:-3]}]})
    assert (await bob("GET", MAPS)).status == 403
    assert (await ask.as_user("eve")("GET", MAPS)).status == 200
    await ask("DELETE", binding)
    assert (await ask.as_user("eve")("GET", MAPS)).status == 403


async def test_resource_names_restrict_a_rule(ask):
    await role(ask, "reader", rule("get list watch", "configmaps", resourceNames=["mine"]))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    for name in ("mine", "others"):
        await ask.create(MAPS, name)
    bob = ask.as_user("bob")
    assert (await bob("GET", f"{MAPS}/mine")).status == 200
    assert (await bob("GET", f"{MAPS}/others")).status == 403
    assert (await bob("GET", MAPS)).status == 403
    listed = await bob("GET", f"{MAPS}?fieldSelector=metadata.name%3Dmine")
    assert listed.names == ["mine"]
    assert (await bob("GET", f"{MAPS}?fieldSelector=metadata.name%3Dothers")).status == 403


async def test_a_role_in_a_namespace_applies_to_the_namespace_object(ask):
    await role(ask, "reader", rule("get", "namespaces"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    bob = ask.as_user("bob")
    assert (await bob("GET", "/api/v1/namespaces/default")).status == 200
    refused = await bob("GET", "/api/v1/namespaces/other")
    assert refused["message"] == (
        'namespaces "other" is forbidden: User "bob" cannot get resource "namespaces" in API group '
        '"" in the namespace "other"'
    )


async def test_connecting_to_a_pod_by_websocket_needs_create(ask):
    """A websocket is a GET, whatever it leads to."""
    await role(ask, "reader", rule("get", "pods pods/exec pods/log"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    bob, pod = ask.as_user("bob"), "/api/v1/namespaces/default/pods/vm"
    refused = await bob("GET", f"{pod}/exec")
    assert 'cannot create resource "pods/exec"' in refused["message"]
    assert (await bob("GET", f"{pod}/log")).status == 404
    await role(ask, "runner", rule("create", "pods/exec"))
    await bind(ask, "more", "Role", "runner", user("bob"))
    assert (await bob("GET", f"{pod}/exec")).status == 404


async def test_connecting_to_a_pod_by_spdy_needs_create_only(ask):
    await role(ask, "runner", rule("create", "pods/exec"))
    await bind(ask, "bobs", "Role", "runner", user("bob"))
    bob, pod = ask.as_user("bob"), "/api/v1/namespaces/default/pods/vm"
    assert (await bob("POST", f"{pod}/exec")).status == 404
    assert (await bob("POST", f"{pod}/portforward")).status == 403


async def test_subresources_of_vmis_have_all_segments_in_rules_except_ports(ask):
    subresources = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
    names = ("evacuate/cancel", "vnc", "portforward")
    allowed = rule(
        "get update",
        " ".join(f"virtualmachineinstances/{name}" for name in names),
        apiGroups=["subresources.kubevirt.io"],
    )
    await role(ask, "opener", allowed)
    await bind(ask, "bobs", "Role", "opener", user("bob"))
    bob = ask.as_user("bob")
    assert (await bob("PUT", f"{subresources}/evacuate/cancel")).status == 404
    for path, status in (("vnc", 404), ("portforward/22/tcp", 404), ("vnc/screenshot", 403)):
        assert (await bob("GET", f"{subresources}/{path}")).status == status, path
    refused = await bob("GET", f"{subresources}/console")
    assert refused["message"] == (
        'virtualmachineinstances.subresources.kubevirt.io "vm" is forbidden: User "bob" cannot get '
        'resource "virtualmachineinstances/console" in API group "subresources.kubevirt.io" in the '
        'namespace "default"'
    )


async def test_a_missing_role_is_named_in_the_error(ask):
    await bind(ask, "lost", "ClusterRole", "none", user("bob"))
    refused = await ask.as_user("bob")("GET", MAPS)
    assert refused["message"].endswith(
        'in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "none" not found'
    )
    await bind(ask, "lost-too", "Role", "none", user("bob"))
    refused = await ask.as_user("bob")("GET", MAPS)
    assert refused["message"].endswith(
        'RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, '
        'role.rbac.authorization.k8s.io "none" not found]'
    )


async def test_discovery_needs_a_role(ask):
    bob = ask.as_user("bob")
    refused = await bob("GET", "/api")
    assert (refused.status, refused["message"]) == (
        403,
        'forbidden: User "bob" cannot get path "/api"',
    )
    assert (await bob("GET", "/version")).status == 200


async def test_anonymous_requests_are_unauthorized_unless_public(ask):
    nobody = Asker(ask.server, user=None)
    assert (await nobody("GET", MAPS)).status == 401
    await role(ask, "reader", rule("list", "configmaps"))
    await bind(ask, "all", "Role", "reader", group("system:unauthenticated"))
    assert (await nobody("GET", MAPS)).status == 200
    assert (await nobody("GET", f"{MAPS}/x")).status == 401


async def test_an_index_behind_compaction_is_rebuilt():
    """As after an hour without a question, in which the store forgot what had changed since."""
    now = 0.0
    store = Store.in_memory(clock=lambda: now)
    store._retention = Retention(seconds=10)
    authorizer = Authorizer(store)
    reference = {"apiGroup": RBAC[6:-3], "kind": "ClusterRole", "name": "reader"}

    async def write(kind, namespace, name, **document):
        metadata = {"namespace": namespace, "name": name}
        await store.write(
            f"{kind}.rbac.authorization.k8s.io",
            Key(namespace, name),
            {"metadata": metadata, **document},
        )

    await write("clusterroles", "", "reader", rules=[rule("get", "pods")])
    await write("clusterrolebindings", "", "all", roleRef=reference, subjects=[user("bob")])
    for namespace in ("default", "other"):
        await write("rolebindings", namespace, "bobs", roleRef=reference, subjects=[user("bob")])
    assert authorizer.allows(attributes(namespace=""))
    for kind, namespace, name in (
        ("clusterrolebindings", "", "all"),
        ("rolebindings", "default", "bobs"),
    ):
        full = f"{kind}.rbac.authorization.k8s.io"
        await store.delete(
            full, Key(namespace, name), store.get(full, Key(namespace, name)).document()
        )
    await write("clusterroles", "", "reader", rules=[rule("get", "pods secrets")])
    now = 100.0
    await store.tidy()
    assert store.compacted == store.revision
    assert not authorizer.allows(attributes(namespace=""))
    assert not authorizer.allows(attributes())
    assert authorizer.allows(attributes(resource="secrets", namespace="other"))
    with pytest.raises(Forbidden):
        authorizer.require(attributes())
    await store.close()


async def test_an_incrementally_synced_index_equals_a_rebuilt_one(ask):
    """Every step of a life of bindings, against an index that begins after it."""
    followed = ask.server.authorizer
    await role(ask, "reader", rule("get", "pods"))
    requested = [
        attributes()._replace(user=User(name=name, groups=(which,)))
        for name in ("bob", "eve", "system:serviceaccount:default:robot")
        for which in ("devs", "ops")
    ]
    bindings = f"{RBAC}/namespaces/default/rolebindings"
    robot = {"kind": "ServiceAccount", "name": "robot"}
    full = {"apiGroup": RBAC[6:-3]}
    lists = ([user("bob"), group("ops")], [robot], [], [group("devs"), user("eve")], [user("bob")])
    for step, subjects in enumerate(lists):
        if step in (0, 4):
            await bind(ask, f"b{step}", "Role", "reader", *subjects)
        else:
            named = [one if one is robot else one | full for one in subjects]
            assert (await ask.patch(f"{bindings}/b0", {"subjects": named})).status == 200
        anew = Authorizer(ask.server.store)
        said = [followed.allows(each) for each in requested]
        assert said == [anew.allows(each) for each in requested]
        assert any(said) is bool(subjects)
    await ask("DELETE", bindings)
    assert not any(followed.allows(each) for each in requested)
    assert not followed.roles._bindings


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"roleRef": 7},
        {"roleRef": {"kind": [], "name": "view"}},
        {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "User"}]},
        {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": 7},
        {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": {}}],
        },
    ],
)
async def test_a_malformed_binding_grants_nothing_and_breaks_no_other(ask, broken):
    await role(ask, "reader", rule("list", "configmaps"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    kind, key = "rolebindings.rbac.authorization.k8s.io", Key("default", "broken")
    await ask.server.store.write(kind, key, {"metadata": {**key._asdict()}, **broken})
    bob = ask.as_user("bob")
    assert (await bob("GET", MAPS)).status == 200
    await ask.server.store.delete(kind, key, {"metadata": {**key._asdict()}})
    assert (await bob("GET", MAPS)).status == 200


@pytest.mark.parametrize("rules", [7, [7], [{"verbs": 7}], [{"verbs": [[]]}]])
async def test_a_malformed_rule_grants_nothing(ask, rules):
    key = Key("default", "broken")
    document = {"metadata": {**key._asdict()}, "rules": rules}
    await ask.server.store.write("roles.rbac.authorization.k8s.io", key, document)
    await bind(ask, "bobs", "Role", "broken", user("bob"))
    assert (await ask.as_user("bob")("GET", MAPS)).status == 403
