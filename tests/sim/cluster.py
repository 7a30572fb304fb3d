"""A whole cluster in one event loop: real server and controllers, virtual time, seeded faults."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightkube.models.core_v1 import Event, Namespace, Pod
from tests.exposition import Scrape
from tests.sim.host_network import HostNetwork
from tests.sim.hosts import EPOCH, Joined, clock_condition_of

from corral.aio import Background
from corral.api.errors import Unavailable
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.usage import NODE_METRICS, POD_METRICS, NodeMetrics, PodMetrics
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.request import Request, Response, User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster import api_services, clusterrole_aggregation, kubevirt_object
from corral.config import THRESHOLDS
from corral.controllers import SOURCES, controllers as own_controllers
from corral.daemon.component_users import CONTROLLER, STAND_IN
from corral.daemon.nodes import node_remover, play
from corral.daemon.stand_ins import STAND_INS
from corral.metrics import Registry, Source
from corral.node.agent.agent import Agent
from corral.node.agent.host_parts import HostParts
from corral.node.agent.node_informers import NodeInformers
from corral.node.fencing.lease import NodeLease
from corral.node.hollow.hypervisor import Hollow, HollowGuest, HollowNetworks
from corral.node.hypervisor import Change, Usage
from corral.node.images.store import ImageStore
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.pressure import Pressure, parse_thresholds
from corral.node.state.machine_record import MACHINES
from corral.node.status.node_status import Capacity, Registration
from corral.reconcile import metrics as loops
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.server.app import ApiServer
from corral.store import Store

AMPLE = Capacity(cpu=64, memory_bytes=1 << 36, storage_bytes=1 << 40)
ADMIN = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
COMPONENT = User(
    name="system:serviceaccount:kubevirt:kubevirt-controller",
    groups=("system:masters",),
    agent="virt-controller",
)
"""A test that plays a component's part."""


@dataclass
class Faults:
    """Faults between the controllers and the server, chosen by a seed."""

    seed: int = 0
    fail: float = 0.0
    """Share of requests that are refused before the server sees them."""
    lose_answer: float = 0.0
    """Share of writes that succeed but whose response is lost."""
    delay: float = 0.0
    """Longest delay of a request, seconds."""
    cut: float = 0.0
    """Share of a watch's lines after which it breaks."""
    double: float = 0.0
    """Share of a watch's lines that are duplicated."""
    until: float = 30.0
    """No faults after this time."""
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def occurs(self, share: float) -> bool:
        now = asyncio.get_running_loop().time()
        return now < self.until and self.dice.random() < share


class Faulty:
    """A transport with faults."""

    def __init__(self, inner: InProcess, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults

    async def send(self, request: Request) -> Response:
        faults = self.faults
        if faults.delay and faults.occurs(1):
            await asyncio.sleep(faults.dice.uniform(0, faults.delay))
        if faults.occurs(faults.fail):
            raise Unavailable("a fault of the test: refused")
        response = await self.inner.send(request)
        if isinstance(response.body, bytes):
            if request.method != "GET" and faults.occurs(faults.lose_answer):
                raise Unavailable("a fault of the test: answer lost")
            return response
        response.body = self._lines(response.body)
        return response

    async def _lines(self, lines):
        try:
            async for line in lines:
                if self.faults.occurs(self.faults.cut):
                    raise Unavailable("a fault of the test: watch broken")
                yield line
                if self.faults.occurs(self.faults.double):
                    yield line
        finally:
            await lines.aclose()


class Inline(ThreadPoolExecutor):
    """Runs what is meant for a thread at once: virtual time would run on while a thread works."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed on to whoever awaits it
            future.set_exception(error)
        return future


_ABOUT_ITSELF = frozenset(
    (clusterrole_aggregation.controller, api_services.controller, kubevirt_object.controller)
)
"""Loops that only write down what the server is like: hundreds of writes at each start."""


class Samplers(dict[str, Sampler]):
    """The usage samplers of all nodes, by node name."""

    def pod_metrics(self, key: Key) -> PodMetrics | None:
        known = (one.pod_metrics(key) for one in self.values())
        return next((metrics for metrics in known if metrics is not None), None)

    def node_metrics(self, key: Key) -> NodeMetrics | None:
        return self[key.name].node_metrics(key) if key.name in self else None


class Cluster:
    """The cluster under test."""

    def __init__(
        self,
        server: ApiServer,
        clock: Callable[[], datetime],
        faults: Faults,
        directory: Path,
        stand_ins: Sequence[Callable[[ControllerContext], Controller[Any]]] = (),
        networks: HollowNetworks | None = None,
        samplers: "Samplers | None" = None,
        one_host: bool = False,
    ) -> None:
        asyncio.get_running_loop().set_default_executor(Inline())
        self._directory = directory
        self._stand_ins = tuple(stand_ins)
        self._networks = networks
        self._hypervisors: dict[str, Hollow] = {}
        self._targets = MigrationTargets()
        self.network = HostNetwork()
        """The streams of migrations between the hosts of nodes that have joined."""
        self.samplers = Samplers() if samplers is None else samplers
        self.server = server
        self.clock = clock
        self.faults = faults
        self.client = Client(InProcess(server.handle, ADMIN))
        self.component = Client(InProcess(server.handle, COMPONENT))
        self.one_host = one_host
        self._host: Pressure | None = None
        self.left: dict[str, dict[str, Any]] = {}
        """Free resources of each node's host: an Observation by signal; the others are ample."""
        self._nodes: dict[str, asyncio.Task[None]] = {}
        self._tasks = Background()
        self._loops: asyncio.Task[None] | None = None
        self._sources: dict[str, Source] = {}
        self.agents: dict[str, Agent] = {}
        self.joined: dict[str, Joined] = {}
        """Nodes of hosts that have joined, which may be cut off: they fence themselves."""

    def node_directory(self, name: str) -> Path:
        return self._directory / name

    def start_loops(self) -> None:
        """Start the controllers, with caches of their own, as a new process would."""
        context = ControllerContext(self._client(STAND_IN), clock=self.clock)
        ours = context.with_client(self._client(CONTROLLER))
        controllers = own_controllers(ours)
        controllers += [make(context) for make in self._stand_ins]
        self._sources |= {name: make(ours) for name, make in SOURCES.items()}
        self._sources["loops"] = loops.of(lambda: controllers)

        async def run() -> None:
            async with Background() as tasks:
                tasks.start(context.run(), name="context")
                for controller in controllers:
                    tasks.start(controller.run(), name=controller.name)
                await asyncio.Event().wait()

        self._loops = self._tasks.start(run(), name="loops")

    def _client(self, user: User) -> Client:
        return Client(Faulty(InProcess(self.server.handle, user), self.faults))

    async def crash_loops(self) -> None:
        """End the controllers wherever they are: what they remembered is lost."""
        assert self._loops is not None
        self._loops.cancel()
        await asyncio.wait([self._loops])

    def alive(self, name: str) -> bool:
        """Return whether the agent of a node runs."""
        return name in self._nodes

    def kill_agent(self, name: str) -> None:
        """End a node's agent wherever it is, as ``kill -9`` would; its guests run on."""
        self._nodes.pop(name).cancel()
        self.network.end(name)
        del self.samplers[name]

    def start_node(self, name: str, capacity: Capacity = AMPLE, *, retired: bool = False) -> None:
        """Switch a node on; after ``kill_agent`` it takes over what still runs there.

        One that is ``retired`` goes with its last machine.
        """
        user = User(name=f"system:node:{name}", groups=("system:nodes", "system:authenticated"))
        inner = InProcess(self.server.handle, user)
        joined = self.joined.get(name)
        if joined is None:
            context = ControllerContext(Client(inner), clock=self.clock)
        else:
            client = Client(joined.link_over(inner))
            informers = NodeInformers(client, name)
            clock = joined.server_clock.now
            context = ControllerContext(client, informers=informers, clock=clock)
        targets = self._targets
        if joined is not None:
            targets = self.network.targets(name, context.client)
        hypervisor = self._hypervisors.setdefault(name, Hollow())
        sampler = self.samplers[name] = Sampler(
            host=lambda: Usage(0, 0), clock=lambda: self.clock().timestamp()
        )
        images = ImageStore(self._directory / "images")
        pressure, first = self._pressure(name, images)
        agent = self.agents[name] = Agent(
            context,
            name,
            self._directory / name,
            HostParts(
                images=images,
                networks=self._networks,
                sampler=sampler,
                pressure=pressure,
                registration=Registration(kubelet_port=10250 if joined else 0),
                targets=targets,
                moves=joined is not None,
                clock_condition=clock_condition_of(joined),
            ),
            hypervisor=hypervisor,
            capacity=capacity,
            address="192.0.2.1",
            retired=retired,
            lease=joined and NodeLease(self._directory / name, joined.boottime),
        )
        gone: dict[str, str] = {}
        administrator = Client(InProcess(self.server.handle, ADMIN))
        removal = node_remover(administrator, gone)
        self._sources[name] = agent.vmi_metrics.collect

        async def run() -> None:
            async with Background() as tasks:
                if joined is not None:
                    self.network.begin(name, tasks)
                tasks.start(context.run(), name="context")
                tasks.start(removal.run(), name=removal.name)
                tasks.start(play(agent, administrator, gone, removal), name=name)
                tasks.start(sampler.run(), name="sampler")
                if first:
                    tasks.start(pressure.run(), name="pressure")
                await asyncio.Event().wait()

        self._nodes[name] = self._tasks.start(run(), name=name)

    def _pressure(self, name: str, images: ImageStore) -> tuple[Pressure, bool]:
        """Return the eviction manager of a node's host, and whether this node is its first."""
        if self.one_host and self._host is not None:
            return self._host, False
        left = self.left.setdefault("host" if self.one_host else name, {})
        self._host = Pressure(parse_thresholds(THRESHOLDS), lambda: left, images)
        self._host.observe_once()
        return self._host, True

    async def metrics(self) -> Scrape:
        """Return the present metrics of controllers and nodes."""
        body, _ = await Registry(**self._sources).text()
        return Scrape(body.decode())

    def end(self, machine: Machine, change: Change) -> None:
        """Let a guest end by itself: POWERED_OFF, or GONE as after ``kill -9``."""
        guest = self.guest(machine)
        if change is Change.GONE:
            guest.crash()
        else:
            guest.happen(change)

    def guest(self, machine: Machine) -> HollowGuest:
        """The guest of a machine that runs."""
        return self.guests(machine)[0]

    def guests(self, machine: Machine) -> list[HollowGuest]:
        """The same, or none where no manager has it at the moment."""
        guests = self._hypervisors[machine.status.node_name].guests
        # One that has migrated has the directory of its pod.
        names = {machine.metadata.uid, *machine.status.active_pods}
        return [guests[path] for path in guests if path.name in names]

    def directory(self, machine: Machine) -> Path:
        """Return the directory of a machine on its node."""
        return self._directory / machine.status.node_name / MACHINES / machine.metadata.uid

    async def until(self, condition, seconds: float = 120.0, every: float = 0.05) -> None:
        """Wait, in virtual time, for an awaitable condition to come true.

        Most look at objects, so it is evaluated after writes; for the others once a second, too.
        """
        loop, store = asyncio.get_running_loop(), self.server.store
        async with asyncio.timeout(seconds):
            while True:
                seen, latest = store.revision, loop.time() + 1.0
                if await condition():
                    return
                await asyncio.sleep(every)
                while store.revision == seen and loop.time() < latest:
                    await asyncio.sleep(every)

    async def machines(self, namespace: str = "") -> list[Machine]:
        return (await self.client.list(Machine, namespace)).items

    async def pods(self, namespace: str = "") -> list[Pod]:
        return (await self.client.list(Pod, namespace)).items

    async def replica_set(self, name: str, namespace: str = "default") -> ReplicaSet:
        return await self.client.get(ReplicaSet, name, namespace)

    async def events(self, name: str) -> list[Event]:
        found = await self.client.list(Event, fields=f"involvedObject.name={name}")
        return found.items

    async def scale(self, name: str, replicas: int) -> None:
        await self.client.patch(ReplicaSet, Key("default", name), {"spec": {"replicas": replicas}})

    async def until_ready(self, name: str, replicas: int, seconds: float = 120.0) -> None:
        """Wait until a set has so many machines, all ready, and no others exist."""

        async def is_ready_now() -> bool:
            status = (await self.replica_set(name)).status
            return (
                status.replicas == status.ready_replicas == replicas
                and len(await self.machines("default")) == replicas
                and len(await self.pods("default")) == replicas
            )

        await self.until(is_ready_now, seconds)


@asynccontextmanager
async def cluster(
    *,
    nodes: int = 1,
    faults: Faults | None = None,
    capacity: Capacity = AMPLE,
    stand_ins: Sequence[Callable[[ControllerContext], Controller[Any]]] = (),
    networks: HollowNetworks | None = None,
    about_itself: bool = False,
    one_host: bool = False,
    joined: Mapping[str, Joined] | None = None,
    only: Collection[Callable[[ControllerContext], Controller[Any]]] = STAND_INS,
) -> AsyncIterator[Cluster]:
    """Run a cluster for the length of a block; ``stand_ins`` are loops beside the usual ones.

    Without ``networks`` pods have their node's address, as behind a user network.  With
    ``about_itself`` there are objects that list what is served, and by whom.  With ``one_host`` all
    nodes are played by the same host: what it has left is ``left["host"]``.  The nodes in
    ``joined`` are those of other hosts.  Of the usual stand-ins those in ``only`` run.
    """
    loop = asyncio.get_running_loop()

    def clock() -> datetime:
        return EPOCH + timedelta(seconds=loop.time())

    faults = faults or Faults()
    random.seed(faults.seed)
    store = Store.in_memory(clock=lambda: clock().timestamp())
    samplers = Samplers()
    server = ApiServer(
        store,
        now=lambda: clock().timestamp(),
        observed={
            POD_METRICS.resource: samplers.pod_metrics,
            NODE_METRICS.resource: samplers.node_metrics,
        },
    )
    usual = [each for each in only if about_itself or each not in _ABOUT_ITSELF]
    made = [*usual, *stand_ins]
    with TemporaryDirectory() as directory:
        whole = Cluster(server, clock, faults, Path(directory), made, networks, samplers, one_host)
        whole.joined.update(joined or {})
        for namespace in ("default", "kube-node-lease", "kube-system"):
            await whole.client.create(Namespace, {"metadata": {"name": namespace}})
        async with whole._tasks:
            for number in range(nodes):
                whole.start_node(f"node{number}", capacity)
            whole.start_loops()
            yield whole
    await store.close()


def replica_set(name: str = "test", replicas: int = 3, **spec) -> dict:
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "domain": {
                        "resources": {"requests": {"memory": "64M"}},
                        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                    },
                    "volumes": [{"name": "root", "containerDisk": {"image": "cirros:1"}}],
                },
            },
            **spec,
        },
    }
