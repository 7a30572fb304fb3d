"""Each namespace gets what Kubernetes gives it: an account, and the server's authority."""

import pytest
from lightkube.models.core_v1 import ConfigMap, Namespace, ServiceAccount
from tests.sim.cluster import Faults, cluster

from corral.api.errors import NotFound
from corral.api.object import Key
from corral.cluster import service_accounts

pytestmark = pytest.mark.looptime

LOOP = service_accounts.controller(lambda: "-----BEGIN CERTIFICATE-----")
WANTED = ((ServiceAccount, service_accounts.ACCOUNT), (ConfigMap, service_accounts.AUTHORITY))


async def found(c, view, name, namespace):
    try:
        return await c.client.get(view, name, namespace)
    except NotFound:
        return None


def complete(c, *namespaces):
    async def all_there():
        return all(
            [
                await found(c, view, name, namespace)
                for view, name in WANTED
                for namespace in namespaces
            ]
        )

    return c.until(all_there)


async def test_existing_and_new_namespaces_get_the_default_account():
    async with cluster(stand_ins=[LOOP]) as c:
        await complete(c, "default", "kube-system")
        await c.client.create(Namespace, {"metadata": {"name": "farm"}})
        await complete(c, "farm")
        authority = await found(c, ConfigMap, service_accounts.AUTHORITY, "farm")
        assert authority.data == {"ca.crt": "-----BEGIN CERTIFICATE-----"}


@pytest.mark.parametrize(("view", "name"), WANTED)
async def test_deleted_accounts_are_recreated(view, name):
    async with cluster(stand_ins=[LOOP]) as c:
        await complete(c, "default")
        await c.client.delete(view, Key("default", name))
        await complete(c, "default")


async def test_a_changed_root_ca_config_map_is_restored():
    async with cluster(stand_ins=[LOOP]) as c:
        await complete(c, "default")
        key = Key("default", service_accounts.AUTHORITY)
        await c.client.patch(ConfigMap, key, {"data": {"ca.crt": "forged", "more": "x"}})

        async def is_right():
            present = await found(c, ConfigMap, key.name, key.namespace)
            return present.data == {"ca.crt": "-----BEGIN CERTIFICATE-----"}

        await c.until(is_right)


async def test_a_deleted_namespace_is_removed_with_its_accounts():
    async with cluster(stand_ins=[LOOP]) as c:
        await c.client.create(Namespace, {"metadata": {"name": "farm"}})
        await complete(c, "farm")
        await c.client.delete(Namespace, Key("", "farm"))

        async def is_gone():
            return await found(c, Namespace, "farm", "") is None

        await c.until(is_gone)


async def test_accounts_are_created_in_spite_of_faults():
    faults = Faults(seed=7, fail=0.2, lose_answer=0.2, delay=0.5, cut=0.1, double=0.1)
    async with cluster(stand_ins=[LOOP], faults=faults) as c:
        await complete(c, "default", "kube-system", "kube-node-lease")
