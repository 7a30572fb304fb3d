"""Tests of who is who, and who may do what."""

import pytest
from tests.unit.server.conftest import MACHINES, MAPS

from corral.api.errors import Unauthorized
from corral.api.request import Request, User
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR, ANONYMOUS, Authenticator
from corral.store import Store


def request(**headers):
    return Request(method="GET", path="/", headers=headers)


@pytest.fixture
def authenticator():
    return Authenticator({"secret": ADMINISTRATOR, "other": User(name="bob")})


def test_a_token_names_its_user(authenticator):
    assert authenticator.user(request(authorization="Bearer secret")) is ADMINISTRATOR
    assert authenticator.user(request(authorization="bearer other")).name == "bob"


def test_requests_without_credentials_are_anonymous(authenticator):
    assert authenticator.user(request()) is ANONYMOUS


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer", "Bearer ", "Basic secret", "secret", "Bearer sécret"]
)
def test_unknown_credentials_are_unauthorized(authenticator, header):
    with pytest.raises(Unauthorized):
        authenticator.user(request(authorization=header))


async def test_the_error_names_the_forbidden_request(ask):
    bob = ask.as_user("bob")
    refused = await bob("GET", MAPS)
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'configmaps is forbidden: User "bob" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    named = await bob("DELETE", f"{MACHINES}/vm")
    assert named["message"] == (
        'virtualmachineinstances.kubevirt.io "vm" is forbidden: User "bob" cannot delete resource '
        '"virtualmachineinstances" in API group "kubevirt.io" in the namespace "default"'
    )
    everywhere = await bob("GET", "/api/v1/nodes?watch=1")
    assert (
        'cannot watch resource "nodes" in API group "" at the cluster scope'
        in (everywhere["message"])
    )
    assert refused.headers["x-content-type-options"] == "nosniff"


async def test_authenticated_users_can_read_discovery(ask, policy):
    bob = ask.as_user("bob")
    for path in ("/api", "/apis", "/version", "/openapi/v3", "/apis/kubevirt.io/v1"):
        assert (await bob("GET", path)).status == 200


async def test_components_have_only_their_fixed_rights(ask):
    node = ask.as_user("system:node:one")
    controller = ask.as_user("system:serviceaccount:kubevirt:kubevirt-controller")
    assert (await node("GET", "/api/v1/pods")).status == 200
    assert (await node("GET", MACHINES)).status == 200
    assert (await node("DELETE", f"{MACHINES}/vm")).status == 403
    assert (await controller("DELETE", f"{MACHINES}/vm")).status == 404
    assert (await controller("DELETE", "/api/v1/namespaces/default")).status == 403


@pytest.mark.parametrize(
    "user",
    [
        "system:kube-scheduler",
        "system:kube-controller-manager",
        "system:node:one",
        "system:serviceaccount:kube-system:any",
        "system:serviceaccount:kubevirt:kubevirt-controller",
    ],
)
async def test_only_administrators_connect_to_guests(ask, user):
    component = ask.as_user(user)
    subresources = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
    pod = "/api/v1/namespaces/default/pods/vm"
    assert (await component("GET", pod)).status == 404
    for path in (f"{pod}/exec", f"{pod}/attach", f"{pod}/portforward", f"{subresources}/console"):
        assert (await component("GET", path)).status == 403
    assert (await component("PUT", f"{subresources}/pause")).status == 403
    assert (await ask("GET", f"{pod}/exec")).status == 404


async def test_only_administrators_can_impersonate(ask):
    as_bob = {"impersonate-user": "bob"}
    refused = await ask("GET", MAPS, headers=as_bob)
    assert refused.status == 403
    assert 'User "bob"' in refused["message"]
    as_admin = {"impersonate-user": "eve", "impersonate-group": "system:masters"}
    assert (await ask("GET", MAPS, headers=as_admin)).status == 200
    refused = await ask.as_user("bob")("GET", MAPS, headers=as_admin)
    assert refused.status == 403
    assert 'cannot impersonate resource "users"' in refused["message"]


async def test_forbidden_requests_do_not_reveal_objects(ask):
    bob = ask.as_user("bob")
    for path in ("/apis/nosuch.example/v1/things", "/api/v1/namespaces/default/things/x"):
        assert (await ask("GET", path)).status == 404
        refused = await bob("GET", path)
        assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'things "x" is forbidden: User "bob" cannot get resource "things" in API group "" in the '
        'namespace "default"'
    )


@pytest.mark.parametrize("part", ["group", "uid", "extra-scopes"])
async def test_impersonating_groups_without_a_user_is_rejected(ask, part):
    refused = await ask("GET", MAPS, headers={f"impersonate-{part}": "x"})
    assert refused.status == 400


async def test_anonymous_users_read_only_health_and_version():
    store = Store.in_memory()
    server = ApiServer(store, authenticator=Authenticator({"secret": ADMINISTRATOR}))

    async def status(path, **headers):
        response = await server.handle(Request(method="GET", path=path, headers=headers))
        return response.status

    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert await status(path) == 200
    for path in ("/api", "/apis", "/openapi/v3", MAPS, "/api/v1/nonsense", "/metrics"):
        assert await status(path) == 401
    assert await status(MAPS, authorization="Bearer wrong") == 401
    assert await status(MAPS, authorization="Bearer secret") == 200
    await store.close()
