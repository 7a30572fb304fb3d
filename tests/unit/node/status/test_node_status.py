"""The Node that an agent keeps, and its Lease."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from corral.aio import Background
from corral.api.errors import Conflict, Unavailable
from corral.api.kinds.core import node_lease
from corral.api.patch.merge import merge_patch
from corral.api.request import Request, Response
from corral.client.client import Client
from corral.client.server_clock import ServerClock
from corral.node.checkpoint_usage import CheckpointUsage
from corral.node.fencing.lease import NodeLease
from corral.node.status.node_status import (
    Capacity,
    Heartbeat,
    Host,
    clock_condition,
    host_address,
    measure,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = Host(
    name="node1",
    address="192.0.2.1",
    capacity=Capacity(cpu=2, memory_bytes=20 << 30, storage_bytes=20 << 30),
)


def test_allocatable_is_less_than_capacity():
    status = HOST.status(NOW, [])
    assert status["capacity"]["memory"] == f"{20 << 20}Ki"
    assert status["allocatable"]["memory"] == f"{19 << 20}Ki"
    assert status["allocatable"]["cpu"] == "2"


def test_what_checkpoints_occupy_is_promised_to_nobody():
    held = CheckpointUsage(1, 2 << 30, 3 << 30)
    host = replace(HOST, checkpoints=lambda: held)
    allocatable = host.status(NOW, [])["allocatable"]
    assert allocatable["memory"] == f"{16 << 20}Ki"
    assert allocatable["ephemeral-storage"] == f"{17 << 20}Ki"
    annotations = host.node(NOW)["metadata"]["annotations"]
    assert annotations["corral.dev/checkpoints"].startswith("1, 2048 MiB on disk, 3072 MiB")
    assert HOST.node(NOW)["metadata"]["annotations"]["corral.dev/checkpoints"] is None
    held = CheckpointUsage(1, 1 << 50, 1 << 50)
    assert host.status(NOW, [])["allocatable"]["memory"] == "0Ki"


def test_memory_is_promised_twice_if_that_was_decided():
    capacity = replace(HOST.capacity, overcommit_percent=200)
    host = replace(HOST, capacity=capacity, checkpoints=lambda: CheckpointUsage(1, 0, 1 << 30))
    status = host.status(NOW, [])
    assert status["allocatable"]["memory"] == f"{36 << 20}Ki"
    assert status["capacity"]["memory"] == f"{20 << 20}Ki"
    assert host.node(NOW)["metadata"]["annotations"]["corral.dev/overcommit"] == "200"
    assert HOST.node(NOW)["metadata"]["annotations"]["corral.dev/overcommit"] is None


def test_transition_times_change_with_the_status_only():
    before = HOST.status(NOW, [])["conditions"]
    later = HOST.status(NOW + timedelta(minutes=5), before)["conditions"]
    assert {one["lastTransitionTime"] for one in later} == {"2026-01-01T00:00:00Z"}
    assert {one["lastHeartbeatTime"] for one in later} == {"2026-01-01T00:05:00Z"}
    lost = [one | {"status": "Unknown"} for one in before]
    again = HOST.status(NOW + timedelta(minutes=9), lost)["conditions"]
    assert {one["lastTransitionTime"] for one in again} == {"2026-01-01T00:09:00Z"}


def test_conditions_of_others_are_kept():
    theirs = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp"}
    conditions = HOST.status(NOW, [theirs, {"type": "Ready", "status": "Unknown"}])["conditions"]
    assert conditions[0] == theirs
    assert [each["status"] for each in conditions if each["type"] == "Ready"] == ["True"]


@pytest.mark.parametrize(
    ("offset", "status", "words"),
    [(1.0, "True", "agrees with"), (600.0, "False", "is 10 minutes behind that of")],
)
def test_the_node_reports_its_clock(offset, status, words):
    clock = ServerClock()
    clock.offset = offset
    host = replace(HOST, clock=lambda: clock_condition(clock))
    (condition,) = (
        each for each in host.status(NOW, [])["conditions"] if each["type"] == "ClockSynchronized"
    )
    assert condition["status"] == status
    assert words in condition["message"]


@pytest.mark.parametrize(
    ("facts", "accelerator"),
    [
        ({"hypervisor": "qemu", "version": "7.2.22", "accelerator": "kvm"}, "qemu 7.2.22, kvm"),
        ({"hypervisor": "hollow", "accelerator": "none"}, "hollow"),
    ],
)
def test_the_node_reports_what_runs_its_machines(facts, accelerator):
    host = replace(HOST, facts=lambda: facts | {"reason": "that is why"})
    annotations = host.node(NOW)["metadata"]["annotations"]
    assert annotations["corral.dev/accelerator"] == accelerator
    assert annotations["corral.dev/accelerator-reason"] == "that is why"


def test_the_node_reports_its_network():
    network = {"network": "machines 10.244.0.0/16", "reason": "pasta is missing"}
    node = replace(HOST, network=lambda: network).node(NOW)
    annotations = node["metadata"]["annotations"]
    assert annotations["corral.dev/network"] == "machines 10.244.0.0/16"
    assert annotations["corral.dev/network-reason"] == "pasta is missing"
    assert annotations["corral.dev/wireguard-public-key"] is None
    assert "corral.dev/network" not in HOST.node(NOW)["metadata"]["annotations"]


def test_the_node_publishes_its_wireguard_key():
    network = {"network": "machines 10.244.0.0/16", "reason": ""}
    network |= {"wireguard": "a2V5", "wireguard-port": "51820"}
    annotations = replace(HOST, network=lambda: network).node(NOW)["metadata"]["annotations"]
    assert annotations["corral.dev/wireguard-public-key"] == "a2V5"
    assert annotations["corral.dev/wireguard-port"] == "51820"


def test_the_node_reports_the_methods_of_limits():
    limits = {"limits": "cpu and memory by cgroup v2", "reason": "a test process was bounded"}
    annotations = replace(HOST, limits=lambda: limits).node(NOW)["metadata"]["annotations"]
    assert annotations["corral.dev/limits"] == "cpu and memory by cgroup v2"
    assert annotations["corral.dev/limits-reason"] == "a test process was bounded"
    assert "corral.dev/limits" not in HOST.node(NOW)["metadata"]["annotations"]


def test_the_node_reports_missing_prerequisites():
    lacks = replace(HOST, facts=lambda: {"hypervisor": "qemu", "missing": "qemu is missing"})
    assert lacks.node(NOW)["metadata"]["annotations"]["corral.dev/missing"] == "qemu is missing"
    assert HOST.node(NOW)["metadata"]["annotations"]["corral.dev/missing"] is None
    made = Heartbeat(Client(Server()), HOST, lambda: NOW)._anew(HOST.node(NOW))
    assert "corral.dev/missing" not in made["metadata"]["annotations"]


def test_the_capacity_of_the_host_is_read(tmp_path):
    capacity = measure(tmp_path)
    assert capacity.cpu >= 1
    assert capacity.memory_bytes > 1 << 20
    assert capacity.storage_bytes > 1 << 20
    assert host_address().count(".") == 3


class Server:
    """Takes every patch, unless it is away."""

    def __init__(self) -> None:
        self.away = False
        self.takes = 0.0
        self.beats: list[float] = []
        self.writes: list[float] = []
        self.requests: list[str] = []

    async def send(self, request: Request) -> Response:
        if self.away:
            raise Unavailable("away")
        await asyncio.sleep(self.takes)
        self.requests.append(f"{request.method} {request.path.split('/', 3)[-1]}")
        name = request.path.rpartition("/")[2]
        if "leases" in request.path:
            self.beats.append(round(asyncio.get_running_loop().time()))
        if request.method == "PATCH" and "nodes" in request.path:
            self.writes.append(asyncio.get_running_loop().time())
        return Response(body=msgspec.json.encode({"metadata": {"name": name}}))


@pytest.mark.looptime
async def test_a_lease_is_renewed_every_ten_seconds_and_at_once_when_the_server_is_back():
    server = Server()
    async with Background() as tasks:
        tasks.start(Heartbeat(Client(server), HOST, lambda: NOW).run(), name="heartbeat")
        await asyncio.sleep(25)
        assert server.beats == [0, 10, 20]
        server.away = True
        await asyncio.sleep(17)
        server.away = False
        await asyncio.sleep(15)
    assert server.beats[3:] in ([42, 52], [43, 53])


@pytest.mark.looptime
async def test_a_lease_is_valid_from_before_its_renewal_was_sent(tmp_path):
    """The API server may store a renewal at once and respond late."""
    lease = NodeLease(tmp_path, asyncio.get_running_loop().time)
    server = Server()
    server.takes = 2.0
    heartbeat = Heartbeat(Client(server), HOST, lambda: NOW, lease=lease)
    async with Background() as tasks:
        tasks.start(heartbeat.run(), name="heartbeat")
        await lease.renewal.wait()
    assert lease.seconds_left == pytest.approx(node_lease.SECONDS - server.takes, abs=0.1)


@pytest.mark.looptime
async def test_a_status_that_a_renewal_changes_is_written_at_once():
    server = Server()
    news = [True]

    async def after_renewal():
        return bool(news and news.pop())

    heartbeat = Heartbeat(Client(server), HOST, lambda: NOW, after_renewal=after_renewal)
    async with Background() as tasks:
        tasks.start(heartbeat.run(), name="heartbeat")
        await asyncio.sleep(9)
    assert server.beats == [0, 0]
    assert not news


@pytest.mark.looptime
async def test_a_heartbeat_reaches_a_busy_server_before_kubevirts_timeout():
    server = Server()
    server.takes = 2.0
    async with Background() as tasks:
        tasks.start(Heartbeat(Client(server), HOST, lambda: NOW).run(), name="heartbeat")
        await asyncio.sleep(1200)
    between = [later - earlier for earlier, later in pairwise(server.writes)]
    assert len(between) > 3
    assert max(between) < 280  # virt-controller waits for 300


@pytest.mark.looptime
async def test_an_idle_node_sends_one_request_in_four_minutes_besides_its_lease():
    server = Server()
    async with Background() as tasks:
        tasks.start(Heartbeat(Client(server), HOST, lambda: NOW).run(), name="heartbeat")
        await asyncio.sleep(5)
        server.requests.clear()
        await asyncio.sleep(3600)
    leases = [each for each in server.requests if "leases" in each]
    assert len(leases) == 360
    assert set(server.requests) - set(leases) == {"PATCH nodes/node1/status"}
    assert len(server.requests) - len(leases) == 15


class ServerWithNode(Server):
    """Merges patches into a Node whose version each write changes."""

    def __init__(self) -> None:
        super().__init__()
        self.node = {"metadata": {"name": "node1"}}

    def write(self, patch) -> None:
        self.node = merge_patch(self.node, patch)
        self.node["metadata"]["resourceVersion"] = str(len(self.requests))

    async def send(self, request: Request) -> Response:
        response = await super().send(request)
        if "nodes" not in request.path:
            return response
        if request.method == "PATCH":
            patch = msgspec.json.decode(request.body)
            current = self.node["metadata"].get("resourceVersion")
            if patch["metadata"].get("resourceVersion", current) != current:
                raise Conflict("the object has been modified")
            self.write(patch)
        return Response(body=msgspec.json.encode(self.node))


@pytest.mark.looptime
async def test_a_condition_that_another_adds_to_an_idle_node_is_kept():
    server = ServerWithNode()
    async with Background() as tasks:
        tasks.start(Heartbeat(Client(server), HOST, lambda: NOW).run(), name="heartbeat")
        await asyncio.sleep(60)
        theirs = {"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"}
        server.write({"status": {"conditions": [theirs, *server.node["status"]["conditions"]]}})
        server.requests.clear()
        await asyncio.sleep(600)
    found = server.node["status"]["conditions"]
    assert [each["reason"] for each in found if each["type"] == "NetworkUnavailable"] == [
        "CalicoIsUp"
    ]
    assert sum("PATCH nodes" in each for each in server.requests) == 3
