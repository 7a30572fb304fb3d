"""Claims of warm pools, as their users see them."""

import asyncio
import base64
from datetime import timedelta

import pytest
from lightkube.models.core_v1 import Secret
from tests.sim.cluster import cluster
from tests.sim.vm_claims import (
    becomes,
    bindings,
    claim,
    condition,
    create,
    machine_of,
    owned_by,
    release,
    with_spares,
)
from tests.sim.warm_pools import POOL, members, pool_of, spares, uids, until_spares, warm_pool

from corral.api.kinds.corral.claim import VirtualMachineClaim as Claim
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.vmi.user_data import USER_DATA
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.client.claim import ClaimError, deleted, ready
from corral.node.hypervisor import Change
from corral.reconcile.objects import key_of

pytestmark = pytest.mark.looptime

AT_ONCE = 2.0


async def is_gone(c, uid):
    async def gone():
        return uid not in uids(await c.machines())

    await c.until(gone)


async def test_a_claim_gets_a_machine_that_is_ready_and_nobody_elses():
    async with cluster() as c:
        await with_spares(c, 2)
        before = uids(await spares(c))
        began = c.clock()
        await create(c, ttl="10m")
        bound = await becomes(c, "Ready", "True", "MachineReady")
        assert c.clock() - began < timedelta(seconds=AT_ONCE)
        machine = await machine_of(c, bound)
        assert machine.metadata.uid == bound.status.vmi.uid in before
        assert machine.metadata.labels["corral.dev/claim"] == "job"
        assert "app" not in machine.metadata.labels
        assert len(await members(c)) == 1  # the set has not counted it
        assert bound.status.addresses
        assert bound.status.vmi.pod_name in {key_of(pod).name for pod in await c.pods()}
        assert bound.status.expires_at == rfc3339(began + timedelta(minutes=10))
        await until_spares(c, 2, 200)  # the pool has made another


async def test_a_released_machine_is_never_handed_out_again():
    async with cluster() as c:
        await with_spares(c, 2)
        await create(c)
        first = (await becomes(c, "Bound", "True", "Bound")).status.vmi.uid
        await release(c)
        await is_gone(c, first)
        await create(c)
        second = (await becomes(c, "Bound", "True", "Bound")).status.vmi.uid
        assert second != first


async def test_release_waits_until_the_machine_is_gone():
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c)
        bound = await becomes(c, "Bound", "True", "Bound")
        await deleted(c.client, bound.key, bound.metadata.uid)
        assert bound.status.vmi.uid not in uids(await c.machines())
        assert await claim(c) is None


async def test_claims_wait_in_order_of_their_arrival_and_say_so():
    async with cluster() as c, bindings(c) as order:
        await with_spares(c, 0)
        names = ["c", "a", "b", "d"]
        for name in names:
            await create(c, name)
        last = await becomes(c, "Bound", "False", "WaitingForSpare", of="d")
        for position, name in enumerate(names, 1):
            assert (await claim(c, name)).status.position == position
        assert "3 others go before" in last.status.conditions[0].message
        await c.crash_loops()
        c.start_loops()  # the order does not depend on what a controller remembers
        await release(c, "a")

        async def has_moved_up():
            return (await claim(c, "d")).status.position == 3

        await c.until(has_moved_up, 10)
        await c.client.patch(WarmPool, POOL, {"spec": {"replicas": 1}})
        bound = await becomes(c, "Bound", "True", "Bound", of="d")
        assert order == ["c", "b", "d"]
        assert bound.status.position is None


async def test_a_claim_of_a_missing_pool_says_so_at_once_and_is_bound_once_it_exists():
    async with cluster() as c:
        created = await create(c)
        waiting = await becomes(c, "Bound", "False", "WarmPoolNotFound", seconds=AT_ONCE)
        assert waiting.status.position is None
        with pytest.raises(ClaimError, match="no VirtualMachineWarmPool spares"):
            await ready(c.client, created)
        await with_spares(c, 1)
        await becomes(c, "Bound", "True", "Bound")
        reasons = {event.reason for event in await c.events("job")}
        assert reasons == {"WarmPoolNotFound", "Bound"}


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_claim_and_its_machine_end_with_the_ttl(policy):
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c, ttl="30s", shutdownPolicy=policy)
        bound = await becomes(c, "Bound", "True", "Bound")
        await asyncio.sleep(25)
        assert await owned_by(c, bound)
        await asyncio.sleep(10)
        await is_gone(c, bound.status.vmi.uid)
        if policy == "Retain":
            kept = await claim(c)
            assert condition(kept, "Expired") == ("True", "TTL")
            assert condition(kept, "Ready") == ("False", "Expired")
            assert condition(kept, "Bound") == ("False", "Expired")
            assert (kept.status.vmi, kept.status.addresses, kept.status.ssh) == (None, [], "")
            reasons = [event.reason for event in await c.events("job")]
            assert reasons.count("SuccessfulDelete") == 1
        else:
            assert await claim(c) is None


async def test_a_ttl_may_be_extended():
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c, ttl="30s")
        bound = await becomes(c, "Bound", "True", "Bound")
        await c.client.patch(Claim, bound.key, {"spec": {"ttl": "60s"}})
        await asyncio.sleep(50)
        assert (await claim(c)).status.expires_at > bound.status.expires_at
        assert await owned_by(c, bound)
        await asyncio.sleep(15)
        assert await claim(c) is None


async def test_a_claim_that_waits_too_long_expires():
    async with cluster() as c:
        await c.client.create(WarmPool, warm_pool(0))
        created = await create(c, pendingTimeout="20s", shutdownPolicy="Retain")
        with pytest.raises(ClaimError, match="no machine became free"):
            await asyncio.wait_for(ready(c.client, created), 30)
        await with_spares_for_nobody(c)
        assert (await claim(c)).status.vmi is None


async def test_a_claim_that_has_expired_when_it_comes_takes_no_spare():
    async with cluster() as c:
        await with_spares(c, 2)
        before = uids(await spares(c))
        for _ in range(5):
            await create(c, shutdownTime="2000-01-01T00:00:00Z")

            async def has_expired():
                return await claim(c) is None

            await c.until(has_expired, 10)
        await asyncio.sleep(5)
        assert uids(await spares(c)) == before


async def with_spares_for_nobody(c):
    """Let the pool have a spare, and see that it stays one."""
    await c.client.delete(WarmPool, POOL)
    await with_spares(c, 1)
    await asyncio.sleep(10)
    assert len(await spares(c)) == 1


async def test_a_claim_is_not_bound_again_when_its_machine_fails():
    async with cluster() as c:
        await with_spares(c, 2)
        await create(c)
        bound = await becomes(c, "Ready", "True", "MachineReady")
        c.end(await machine_of(c, bound), Change.GONE)
        failed = await becomes(c, "Ready", "False", "MachineEnded")
        assert failed.status.vmi.uid == bound.status.vmi.uid
        assert condition(failed, "Bound") == ("True", "Bound")
        with pytest.raises(ClaimError, match="create another one"):
            await ready(c.client, failed)
        await c.client.delete(Machine, Key("default", bound.status.vmi.name))
        await becomes(c, "Ready", "False", "MachineDeleted")
        await asyncio.sleep(10)
        assert (await claim(c)).status.vmi.uid == bound.status.vmi.uid
        assert "MachineEnded" in {event.reason for event in await c.events("job")}


async def test_user_data_runs_in_the_guest_without_a_reboot():
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c, userData={"inline": "#!/bin/sh\necho hello\n"})
        bound = await becomes(c, "Ready", "True", "MachineReady", seconds=10)
        machine = await machine_of(c, bound)
        assert machine.metadata.annotations[USER_DATA].startswith("#!")
        ((command, typed),) = c.guest(machine).agent.runs
        assert (command[0], command[-1], typed) == (
            "/bin/sh",
            machine.metadata.uid,
            b"#!/bin/sh\necho hello\n",
        )


async def test_a_claim_waits_for_the_secret_of_its_user_data():
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c, userData={"secretRef": {"name": "seed"}})
        waiting = await becomes(c, "Ready", "False", "UserDataNotFound")
        with pytest.raises(ClaimError, match='secret "seed" not found'):
            await ready(c.client, waiting)
        assert "UserDataNotFound" in {event.reason for event in await c.events("job")}
        assert [one.message for one in waiting.status.conditions if one.type == "Ready"] == [
            'secret "seed" not found'
        ]
        data = {"userdata": base64.b64encode(b"#!/bin/sh\n").decode()}
        secret = {"metadata": {"name": "seed", "namespace": "default"}, "data": data}
        await c.client.create(Secret, secret)
        bound = await becomes(c, "Ready", "True", "MachineReady", seconds=5)
        machine = await machine_of(c, bound)
        assert "#!" not in str(machine.metadata.annotations)  # a secret stays in its Secret


async def test_user_data_that_fails_makes_the_claim_unusable():
    async with cluster() as c:
        await with_spares(c, 1)
        machine = (await spares(c))[0]
        c.guest(machine).agent.exit_code = 3
        created = await create(c, userData={"inline": "#!/bin/sh\nexit 3\n"})
        await becomes(c, "Ready", "False", "UserDataFailed")
        with pytest.raises(ClaimError, match="exit code 3"):
            await ready(c.client, created)


async def test_user_data_is_handed_in_although_the_node_was_killed_before():
    async with cluster() as c:
        await with_spares(c, 1)
        c.kill_agent("node0")
        await create(c, userData={"inline": "#!/bin/sh\n"})
        await becomes(c, "Ready", "False", "UserDataPending")
        c.start_node("node0")
        await becomes(c, "Ready", "True", "MachineReady")


async def test_a_claim_from_a_pool_of_its_own_template_has_its_labels():
    async with cluster() as c:
        template = {
            "metadata": {"labels": {"lab": "one"}},
            "spec": {"domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}}},
        }
        await c.client.create(WarmPool, warm_pool(1, template=template))
        await until_spares(c, 1)
        await create(c)
        machine = await machine_of(c, await becomes(c, "Bound", "True", "Bound"))
        assert machine.metadata.labels["lab"] == "one"
        assert (await pool_of(c)).status.claimed_replicas == 1


async def test_claims_are_counted():
    async with cluster() as c:
        await with_spares(c, 1)
        await create(c, "one")
        await becomes(c, "Bound", "True", "Bound", of="one")
        await c.client.patch(WarmPool, POOL, {"spec": {"replicas": 0}})
        await until_spares(c, 0)
        await create(c, "two")
        await becomes(c, "Bound", "False", "WaitingForSpare", of="two")
        metrics = await c.metrics()
        pool = {"namespace": "default", "name": "spares"}
        assert metrics.value("corral_claims_bound_total", **pool) == 1
        assert metrics.value("corral_claims_waiting", **pool) == 1
        assert metrics.value("corral_claim_seconds_sum", **pool) < AT_ONCE
