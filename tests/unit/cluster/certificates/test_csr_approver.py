"""Tests of which certificates nodes get without an administrator."""

import asyncio
import base64

import pytest
from lightkube.models.certificates_v1 import CertificateSigningRequest
from lightkube.models.core_v1 import Node

from corral import pki
from corral.aio import Background
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster.certificates import csr_approver
from corral.daemon.rbac import reconcile_rbac
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

NODE_GROUPS = ("system:nodes", "system:authenticated")
TOKEN_GROUPS = ("system:bootstrappers", "system:bootstrappers:corral:nodes", "system:authenticated")
NODE = User(name="system:node:n1", groups=NODE_GROUPS)
TOKEN = User(name="system:bootstrap:abcdef", groups=TOKEN_GROUPS)
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
REQUEST = Key("", "r")
ADDRESSES = [
    {"type": "InternalIP", "address": "192.0.2.1"},
    {"type": "ExternalIP", "address": "192.0.2.9"},
    {"type": "Hostname", "address": "kubernetes"},
]


async def decision(user, signer, name="n1", hosts=(), groups=("system:nodes",)):
    """Return type and reason of the condition that a request gets, where the node n1 exists."""
    store = Store.in_memory()
    server = ApiServer(store)
    admin = Client(InProcess(server.handle, ADMINISTRATOR))
    await reconcile_rbac(admin)
    await admin.create(Node, {"metadata": {"name": "n1"}})
    status = {"status": {"addresses": ADDRESSES}}
    await admin.patch(Node, Key("", "n1"), status, subresource="status")
    context = ControllerContext(admin)
    approver = csr_approver.Approver(context)
    async with asyncio.timeout(60), Background() as tasks:
        tasks.start(context.run(), name="context")
        await approver.nodes.synced()
        await Client(InProcess(server.handle, user)).create(
            CertificateSigningRequest, request(signer, name, hosts, groups)
        )
        while approver.requests.get(REQUEST) is None:
            await asyncio.sleep(0)
        await approver.reconcile(REQUEST)
        found = await admin.get(CertificateSigningRequest, REQUEST.name)
    await store.close()
    return [(each.type, each.reason) for each in (found.status and found.status.conditions) or ()]


def request(signer, name, hosts, groups):
    _, encoded = pki.new_request(f"system:node:{name}", groups, hosts)
    usage = "server auth" if signer == SERVING else "client auth"
    spec = {
        "request": base64.b64encode(encoded).decode(),
        "signerName": signer,
        "usages": ["digital signature", usage],
    }
    return {"metadata": {"name": REQUEST.name}, "spec": spec}


async def test_a_bootstrap_token_gets_the_certificate_of_a_new_node():
    assert await decision(TOKEN, CLIENT, "n2") == [("Approved", "AutoApproved")]


async def test_a_bootstrap_token_cannot_get_the_certificate_of_an_existing_node():
    assert await decision(TOKEN, CLIENT) == [("Denied", "NodeExists")]


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes.default.svc", "localhost"])
async def test_no_node_can_have_a_name_of_the_api_server(name):
    assert await decision(TOKEN, CLIENT, name) == [("Denied", "NameReserved")]


async def test_a_node_renews_its_own_certificate_only():
    assert await decision(NODE, CLIENT) == [("Approved", "AutoApproved")]
    assert await decision(NODE, CLIENT, "n2") == []


async def test_other_requests_are_left_to_administrators():
    stranger = User(name="anna", groups=("system:masters", "system:authenticated"))
    assert await decision(TOKEN, CLIENT, "n2", hosts=["192.0.2.2"]) == []
    assert await decision(stranger, SERVING, hosts=["192.0.2.1"]) == []


@pytest.mark.parametrize("hosts", [["192.0.2.1"], ["n1"], ["192.0.2.1", "n1"]])
async def test_a_serving_certificate_has_the_nodes_name_and_addresses(hosts):
    assert await decision(NODE, SERVING, hosts=hosts) == [("Approved", "AutoApproved")]


@pytest.mark.parametrize("host", ["192.0.2.2", "192.0.2.9", "kubernetes", "n2"])
async def test_a_serving_certificate_with_another_name_or_address_is_not_approved(host):
    assert await decision(NODE, SERVING, hosts=["192.0.2.1", host]) == []
