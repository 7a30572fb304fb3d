"""Who may write Services that take addresses of others, and ports of the host."""

from ipaddress import ip_address, ip_network

import pytest
from tests.unit.server.authz.test_authorizer import bind, role, rule, user
from tests.unit.server.conftest import MERGE, SERVICES, Asker

from corral.server.admission.service_allocation import ServiceRanges
from corral.server.app import ApiServer
from corral.store import Store

RANGES = ServiceRanges(
    networks=(ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/112")),
    node_ports=range(30000, 30040),
    pods=(ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")),
    name_servers=frozenset({ip_address("198.51.100.53")}),
    kept_ports=(range(8000, 8010), range(30000, 30038)),
)
WEB = f"{SERVICES}/web"


@pytest.fixture
async def admin():
    ask = Asker(ApiServer(Store.in_memory(), services=RANGES))
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    node = await ask.create("/api/v1/nodes", "alpha")
    addresses = [
        {"type": "Hostname", "address": "alpha"},
        {"type": "InternalIP", "address": "192.0.2.2"},
    ]
    node["status"] = {"addresses": addresses}
    answer = await ask("PUT", "/api/v1/nodes/alpha/status", node)
    assert answer.status == 200, answer.text
    yield ask
    await ask.server.store.close()


@pytest.fixture
async def editor(admin):
    """May do with Services what ``edit`` lets do."""
    await role(admin, "editor", rule("create update patch delete get list", "services"))
    await bind(admin, "bobs", "Role", "editor", user("bob"))
    return admin.as_user("bob")


async def allow(admin, right):
    """What the editor may do besides."""
    await role(admin, right, rule("create", f"services/{right}"))
    await bind(admin, f"bobs-{right}", "Role", right, user("bob"))


def service(*, port=8080, **spec):
    return {"metadata": {"name": "web"}, "spec": {"ports": [{"port": port}], **spec}}


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("10.96.0.10", "in the range of Services (10.96.0.0/12)"),
        ("fd00:10:96::a", "in the range of Services (fd00:10:96::/112)"),
        ("10.244.3.7", "in the range of pods (10.244.0.0/16)"),
        ("::ffff:10.244.3.7", "in the range of pods (10.244.0.0/16)"),
        ("fd00:10:244::7", "in the range of pods (fd00:10:244::/56)"),
        ("192.0.2.2", "the address of node alpha"),
        ("198.51.100.53", "the address of a name server"),
    ],
)
async def test_addresses_of_the_cluster_are_rejected(admin, address, owner):
    answer = await admin("POST", SERVICES, service(externalIPs=["203.0.113.1", address]))
    assert answer.status == 422
    why = f'spec.externalIPs[1]: Invalid value: "{address}": may not be {owner}'
    assert answer["message"] == f'Service "web" is invalid: {why}'


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1"])
async def test_special_addresses_are_rejected(admin, address):
    assert (await admin("POST", SERVICES, service(externalIPs=[address]))).status == 422


async def test_other_addresses_need_a_right(admin, editor):
    desired = service(externalIPs=["203.0.113.1"])
    answer = await editor("POST", SERVICES, desired)
    assert answer.status == 403
    assert answer["message"] == (
        'services "web" is forbidden: spec.externalIPs 203.0.113.1 would receive the traffic of '
        'others: User "bob" cannot create resource "services/externalips" in API group "" in the '
        'namespace "default"'
    )
    assert (await editor("POST", SERVICES, service())).status == 201
    patch = {"spec": {"externalIPs": ["203.0.113.1"]}}
    assert (await editor("PATCH", WEB, patch, MERGE)).status == 403
    assert (await admin("PATCH", WEB, patch, MERGE)).status == 200


async def test_users_with_the_right_can_set_external_ips(admin, editor):
    await allow(admin, "externalips")
    assert (await editor("POST", SERVICES, service(externalIPs=["203.0.113.1"]))).status == 201


async def test_existing_external_ips_stay_valid(admin, editor):
    """As with DenyServiceExternalIPs: who may change a Service may leave such an address there."""
    assert (await admin("POST", SERVICES, service(externalIPs=["203.0.113.1"]))).status == 201
    change = {"spec": {"selector": {"app": "web"}}}
    assert (await editor("PATCH", WEB, change, MERGE)).status == 200
    more = {"spec": {"externalIPs": ["203.0.113.1", "203.0.113.2"]}}
    answer = await editor("PATCH", WEB, more, MERGE)
    assert answer.status == 403
    assert "spec.externalIPs 203.0.113.2 would receive" in answer["message"]
    assert (await editor("PATCH", WEB, {"spec": {"externalIPs": None}}, MERGE)).status == 200


@pytest.mark.parametrize("port", [22, 80, 1023, 8000, 8009])
async def test_privileged_and_reserved_host_ports_need_a_right(admin, editor, port):
    desired = service(port=port, type="LoadBalancer")
    answer = await editor("POST", SERVICES, desired)
    assert answer.status == 403
    assert f"ports {port}/TCP of the host are not for everybody's Services" in answer["message"]
    assert 'cannot create resource "services/hostports"' in answer["message"]
    assert (await editor("POST", SERVICES, service(port=port))).status == 201
    assert (await editor("PATCH", WEB, {"spec": {"type": "LoadBalancer"}}, MERGE)).status == 403
    assert (await admin("PATCH", WEB, {"spec": {"type": "LoadBalancer"}}, MERGE)).status == 200
    assert (await editor("PATCH", WEB, {"spec": {"selector": {"a": "b"}}}, MERGE)).status == 200


@pytest.mark.parametrize("port", [1024, 7999, 8010])
async def test_other_host_ports_need_no_right(editor, port):
    answer = await editor("POST", SERVICES, service(port=port, type="LoadBalancer"))
    assert answer.status == 201, answer.text


async def test_users_with_the_right_can_use_restricted_host_ports(admin, editor):
    await allow(admin, "hostports")
    assert (await editor("POST", SERVICES, service(port=80, type="LoadBalancer"))).status == 201


async def test_a_load_balancer_of_another_class_uses_no_host_port(editor):
    spec = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
    assert (await editor("POST", SERVICES, service(port=80, **spec))).status == 201


async def test_a_reserved_node_port_is_never_allocated(admin, editor):
    desired = service(type="NodePort")
    desired["spec"]["ports"][0]["nodePort"] = 30001
    assert (await editor("POST", SERVICES, desired)).status == 403
    for name in ("one", "two"):
        desired = service(type="NodePort") | {"metadata": {"name": name}}
        answer = await editor("POST", SERVICES, desired)
        assert answer["spec"]["ports"][0]["nodePort"] in (30038, 30039)
