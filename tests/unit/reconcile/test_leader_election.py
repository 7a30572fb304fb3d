import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Namespace

from corral.aio import Background
from corral.api.errors import Unavailable
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.reconcile.leader_election import LeaderElection, LeadershipLostError, Timing
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.store import Store

pytestmark = pytest.mark.looptime

LEASE = Key("kube-system", "controllers")
TIMING = Timing()


class Cuttable:
    """A transport whose connection can be cut."""

    def __init__(self, transport):
        self._transport = transport
        self.cut = False
        self.loses_answers = False
        self.methods: list[str] = []

    async def send(self, request):
        if self.cut:
            raise Unavailable("cut")
        self.methods.append(request.method)
        answer = await self._transport.send(request)
        if self.loses_answers:
            raise Unavailable("lost")
        return answer


class Candidates:
    """Candidates of one Lease, each with a connection and a clock of its own."""

    def __init__(self, looptime):
        self._server = ApiServer(Store.in_memory(), authenticator=Authenticator({}))
        self._looptime = looptime
        self.leading: list[tuple[str, float]] = []
        self.ended: list[tuple[str, float]] = []
        self.connections = {}
        self.client = Client(InProcess(self._server.handle, ADMINISTRATOR))

    async def prepare(self):
        await self.client.create(Namespace, {"metadata": {"name": LEASE.namespace}})

    def candidate(self, name, *, clock_ahead=0.0):
        connection = Cuttable(InProcess(self._server.handle, ADMINISTRATOR))
        self.connections[name] = connection

        def clock():
            seconds = float(self._looptime) + clock_ahead
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

        return LeaderElection(Client(connection), LEASE, name, clock=clock, timing=TIMING)

    async def lead(self, name):
        self.leading.append((name, float(self._looptime)))
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append((name, float(self._looptime)))

    def start(self, tasks, name, **options):
        election = self.candidate(name, **options)
        return election, tasks.start(election.run(lambda: self.lead(name)), name=name)

    async def lease(self):
        return (await self.client.get(Lease, LEASE.name, LEASE.namespace)).spec


@pytest.fixture
async def candidates(looptime):
    made = Candidates(looptime)
    await made.prepare()
    return made


async def test_the_first_candidate_leads_and_renews(candidates):
    async with Background() as tasks:
        election, _ = candidates.start(tasks, "a")
        await asyncio.sleep(60)
        assert election.leads
        spec = await candidates.lease()
        assert (spec.holderIdentity, spec.leaseDurationSeconds) == ("a", 12)
        assert (spec.renewTime - spec.acquireTime).total_seconds() >= 57
    assert [name for name, _ in candidates.leading] == ["a"]


async def test_a_leader_renews_with_one_request_each(candidates):
    async with Background() as tasks:
        candidates.start(tasks, "a")
        await asyncio.sleep(1)
        del candidates.connections["a"].methods[:]
        await asyncio.sleep(60)
        assert candidates.connections["a"].methods == ["PUT"] * 30


async def test_a_renewal_that_is_stored_without_an_answer_is_no_loss(candidates):
    async with Background() as tasks:
        election, _ = candidates.start(tasks, "a")
        await asyncio.sleep(1)
        connection = candidates.connections["a"]
        connection.loses_answers = True
        await asyncio.sleep(3)
        connection.loses_answers = False
        del connection.methods[:]
        await asyncio.sleep(60)
        assert connection.methods[:4] == ["PUT", "GET", "PUT", "PUT"]
        assert election.leads
    assert len(candidates.leading) == 1


async def test_only_one_of_two_leads(candidates):
    async with Background() as tasks:
        first, _ = candidates.start(tasks, "a")
        second, _ = candidates.start(tasks, "b")
        await asyncio.sleep(300)
        assert first.leads != second.leads
        assert first.leader == second.leader
    assert len(candidates.leading) == 1


async def test_a_leader_that_cannot_renew_stops_before_another_leads(candidates):
    election = candidates.candidate("a")
    leader = asyncio.create_task(election.run(lambda: candidates.lead("a")))
    await asyncio.sleep(1)
    async with Background() as tasks:
        other, _ = candidates.start(tasks, "b", clock_ahead=-3600)
        await asyncio.sleep(30)
        candidates.connections["a"].cut = True
        died = float(candidates._looptime)
        with pytest.raises(LeadershipLostError, match="not renewed within 8 s"):
            await leader
        assert not election.leads
        await asyncio.sleep(20)
        assert other.leads
        assert (await candidates.lease()).leaseTransitions == 1
    (_, stopped), (name, led) = candidates.ended[0], candidates.leading[1]
    assert name == "b"
    assert stopped < led < died + 15


async def test_a_leader_that_ends_releases_the_lease(candidates):
    election = candidates.candidate("a")
    leader = asyncio.create_task(election.run(lambda: candidates.lead("a")))
    await asyncio.sleep(10)
    async with Background() as tasks:
        candidates.start(tasks, "b")
        await asyncio.sleep(10)
        leader.cancel()
        ended = float(candidates._looptime)
        await asyncio.sleep(5)
        assert candidates.leading[1][0] == "b"
        assert candidates.leading[1][1] <= ended + TIMING.retry


async def test_a_leader_whose_lease_another_holds_stops_at_once(candidates):
    election = candidates.candidate("a")
    leader = asyncio.create_task(election.run(lambda: candidates.lead("a")))
    await asyncio.sleep(10)
    patch = {"spec": {"holderIdentity": "thief", "renewTime": "2026-01-01T00:00:00.000000Z"}}
    await candidates.client.patch(Lease, LEASE, patch)
    with pytest.raises(LeadershipLostError, match="thief holds"):
        await leader
    assert (await candidates.lease()).holderIdentity == "thief"


async def test_the_failure_of_the_work_is_raised(candidates):
    async def fail():
        raise ValueError("broken")

    with pytest.raises(ExceptionGroup) as failed:
        await candidates.candidate("a").run(fail)
    assert str(failed.value.exceptions[0]) == "broken"
    assert (await candidates.lease()).holderIdentity == ""


async def test_the_metric_is_client_gos(candidates):
    election = candidates.candidate("a")
    (family,) = await election.families()
    assert [(one.name, one.labels, one.value) for one in family.samples] == [
        ("leader_election_master_status", {"name": "controllers"}, 0.0)
    ]
