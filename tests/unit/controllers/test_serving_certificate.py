import asyncio
import base64

import pytest
from lightkube.models.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.models.core_v1 import Namespace, Secret

from corral import pki
from corral.aio import Background
from corral.api.errors import NotFound
from corral.api.kinds import KINDS
from corral.api.kinds.table import KindTable
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.controllers import serving_certificate
from corral.controllers.serving_certificate import NAME, SECRET, data_of, ensure, hosts_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.wait import wait_for
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

KEY = Key("corral-system", SECRET)
HOOK = {
    "rules": [],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"service": {"namespace": "corral-system", "name": NAME}},
}


@pytest.fixture
async def client():
    store = Store.in_memory()
    server = ApiServer(store, KindTable(each for each in KINDS if each.native))
    made = Client(InProcess(server.handle, ADMINISTRATOR))
    await made.create(Namespace, {"metadata": {"name": "corral-system"}})
    yield made
    await store.close()


async def configure(client):
    webhooks = [{**HOOK, "name": f"{each}.example.com"} for each in ("a", "b")]
    return await client.create(
        MutatingWebhookConfiguration, {"metadata": {"name": NAME}, "webhooks": webhooks}
    )


def running(client):
    context = ControllerContext(client)
    tasks = Background()
    controller = serving_certificate.controller(context, "corral-system")
    return context, controller, tasks


async def test_the_first_process_creates_the_secret_and_others_read_it(client):
    first = await ensure(client, "corral-system")
    assert await ensure(client, "corral-system") == first
    assert set(pki.certificate_hosts(first["tls.crt"])) == set(hosts_of("corral-system"))
    assert f"{NAME}.corral-system.svc" in hosts_of("corral-system")
    secret = await client.get(Secret, SECRET, "corral-system")
    assert secret.type == "kubernetes.io/tls"


async def test_a_missing_namespace_is_reported(client):
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await ensure(client, "nowhere")


async def test_the_leader_publishes_the_authority_in_all_webhooks(client):
    data = await ensure(client, "corral-system")
    await configure(client)
    context, controller, background = running(client)
    async with background as tasks:
        tasks.start(context.run(), name="context")
        tasks.start(controller.run(), name="controller")
        found = await wait_for(
            client,
            MutatingWebhookConfiguration,
            Key("", NAME),
            lambda each: each.webhooks[0].clientConfig.caBundle,
        )
        bundles = {base64.b64decode(each.clientConfig.caBundle) for each in found.webhooks}
        assert bundles == {data["ca.crt"]}


async def test_a_damaged_certificate_is_made_anew_and_followed(client):
    data = await ensure(client, "corral-system")
    seen = asyncio.Queue()
    context, controller, background = running(client)
    serving_certificate.follow(context, "corral-system", seen.put_nowait)
    async with background as tasks:
        tasks.start(context.run(), name="context")
        tasks.start(controller.run(), name="controller")
        damaged = {"data": {"tls.crt": base64.b64encode(b"garbage").decode()}}
        await client.patch(Secret, KEY, damaged)
        repaired = data_of(
            await wait_for(
                client,
                Secret,
                KEY,
                lambda each: pki.certificate_hosts(data_of(each)["tls.crt"]),
            )
        )
        assert repaired["ca.crt"] == data["ca.crt"]
        assert repaired["tls.crt"] != data["tls.crt"]
        while await seen.get() != repaired:
            pass  # one of the versions before


async def test_a_deleted_secret_is_created_again(client):
    deleted = await ensure(client, "corral-system")
    context, controller, background = running(client)
    seen = asyncio.Queue()
    serving_certificate.follow(context, "corral-system", seen.put_nowait)
    async with background as tasks:
        tasks.start(context.run(), name="context")
        tasks.start(controller.run(), name="controller")
        assert await seen.get() == deleted
        await client.delete(Secret, KEY)
        assert (await seen.get())["ca.crt"] != deleted["ca.crt"]


def test_what_is_not_base64_is_left_out():
    assert data_of(Secret(data={"a": "YQ==", "b": "?"})) == {"a": b"a"}
    assert data_of(Secret()) == {}
