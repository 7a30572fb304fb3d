"""Access credentials by the guest's agent: they follow their Secrets and the guest's starts."""

import asyncio
import base64
from datetime import timedelta

import pytest
from lightkube.models.core_v1 import Secret
from tests.sim.cluster import cluster

from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hollow.guest_agent import NOBODY
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime

KEY = Key("default", "vm")
SYNCED = "AccessCredentialsSynchronized"


def encoded(**values):
    return {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}


async def put(c, name, **values):
    """Make a Secret, or give it other values."""
    document = {"metadata": {"name": name, "namespace": "default"}, "data": encoded(**values)}
    if any(each.metadata.name == name for each in (await c.client.list(Secret)).items):
        await c.client.replace(Secret, document)
    else:
        await c.client.create(Secret, document)


def keys(secret, *users):
    source = {"secret": {"secretName": secret}}
    return {
        "sshPublicKey": {
            "source": source,
            "propagationMethod": {"qemuGuestAgent": {"users": list(users)}},
        }
    }


def passwords(secret):
    source = {"secret": {"secretName": secret}}
    return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}


async def start(c, *credentials):
    spec = {
        "domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}},
        "terminationGracePeriodSeconds": 0,
        "accessCredentials": list(credentials),
    }
    await c.client.create(Machine, {"metadata": KEY._asdict(), "spec": spec})


async def machine(c):
    return await c.client.get(Machine, KEY.name, KEY.namespace)


async def guest(c):
    return c.guest(await machine(c))


async def condition(c):
    found = [one for one in (await machine(c)).status.conditions if one.type == SYNCED]
    return (found[0].status, found[0].message) if found else None


def becomes(c, status, message=""):
    async def is_so():
        return await condition(c) == (status, message)

    return c.until(is_so)


async def test_keys_and_passwords_are_set_when_the_guest_agent_connects():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a", two="ssh-rsa B b\n# note\n")
        await put(c, "words", demo="secret\n")
        await start(c, keys("keys", "demo", "root"), passwords("words"))
        await becomes(c, "True")
        agent = (await guest(c)).agent
        given = ["ssh-ed25519 A a", "ssh-rsa B b"]
        assert agent.keys == {"demo": given, "root": given}
        assert agent.passwords == {"demo": "secret"}
        reasons = [event.reason for event in await c.events(KEY.name)]
        assert reasons.count("AccessCredentialsSyncSuccess") == 1


async def test_a_changed_secret_changes_the_credentials():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a")
        await start(c, keys("keys", "demo"))
        await becomes(c, "True")
        before = c.clock()
        await put(c, "keys", one="ssh-ed25519 B b")

        async def is_other():
            return (await guest(c)).agent.keys == {"demo": ["ssh-ed25519 B b"]}

        await c.until(is_other)
        assert c.clock() - before < timedelta(
            seconds=2
        )  # by the news of it, not by a look now and then


async def test_a_secret_created_later_clears_the_failure():
    async with cluster() as c:
        await start(c, keys("keys", "demo"))
        await becomes(c, "False", 'secret "keys" not found')
        assert (await guest(c)).agent.keys == {}
        before = c.clock()
        await put(c, "keys", one="ssh-ed25519 A a")
        await becomes(c, "True")
        assert c.clock() - before < timedelta(seconds=2)
        reasons = [event.reason for event in await c.events(KEY.name)]
        assert "AccessCredentialsSyncFailed" in reasons
        assert "AccessCredentialsSyncSuccess" in reasons


async def test_a_deleted_secret_leaves_the_credentials():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a")
        await start(c, keys("keys", "demo"))
        await becomes(c, "True")
        await c.client.delete(Secret, Key("default", "keys"))
        await becomes(c, "False", 'secret "keys" not found')
        assert (await guest(c)).agent.keys == {"demo": ["ssh-ed25519 A a"]}


async def test_a_restarted_guest_gets_the_credentials_again():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a")
        await start(c, keys("keys", "demo"))
        await becomes(c, "True")
        agent = (await guest(c)).agent
        agent.keys.clear()
        (await guest(c)).happen(Change.REBOOTED)
        (await guest(c)).happen(Change.AGENT_CONNECTED)

        async def is_reported():
            return agent.keys == {"demo": ["ssh-ed25519 A a"]}

        await c.until(is_reported)


async def test_a_credential_rejected_by_the_guest_is_reported_and_the_others_are_set():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a")
        await put(c, "words", **{NOBODY: "x", "demo": "secret"})
        await start(c, keys("keys", NOBODY, "demo"), passwords("words"))
        await becomes(
            c,
            "False",
            "Error encountered writing ssh pub key access credentials for user [nobody]: failed "
            "to lookup user: nobody; Error encountered setting password for user [nobody]: failed "
            "to lookup user: nobody",
        )
        agent = (await guest(c)).agent
        assert (agent.keys, agent.passwords) == (
            {"demo": ["ssh-ed25519 A a"]},
            {"demo": "secret"},
        )


async def test_a_vmi_without_credentials_has_no_condition():
    async with cluster() as c:
        await start(c)

        async def runs():
            return (await machine(c)).status.phase == "Running"

        await c.until(runs)
        assert await condition(c) is None


async def test_a_restarted_manager_sets_credentials_without_repeating_events():
    async with cluster() as c:
        await put(c, "keys", one="ssh-ed25519 A a")
        await start(c, keys("keys", "demo"))
        await becomes(c, "True")
        node = (await machine(c)).status.node_name
        c.kill_agent(node)
        await asyncio.sleep(5)
        await put(c, "keys", one="ssh-ed25519 B b")
        c.start_node(node)

        async def is_reported():
            found = c.guests(await machine(c))
            return bool(found) and found[0].agent.keys == {"demo": ["ssh-ed25519 B b"]}

        await c.until(is_reported)
        await becomes(c, "True")
        events = [event for event in await c.events(KEY.name) if event.reason.startswith("Access")]
        assert [(event.reason, event.count or 1) for event in events] == [
            ("AccessCredentialsSyncSuccess", 1)
        ]
