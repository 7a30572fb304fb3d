"""Probes in virtual time, and what they say to a pod."""

import asyncio
import socket
from dataclasses import replace
from ipaddress import ip_network
from types import SimpleNamespace

import msgspec
import pytest
from lightkube.models.core_v1 import Pod
from tests.unit.node.kubelet.test_vmi_endpoints import Loopback

from corral.aio import Background
from corral.api.kinds.vmi.derived import UNPAUSED
from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.host.destinations import Destinations
from corral.node.hypervisor import Finished, GuestError
from corral.node.network.guest_ports import Ports
from corral.node.probes.handlers import ProbeHandler, ProbeResult
from corral.node.probes.prober import ProbeHistory, Prober
from corral.node.state.facts import PAUSED_BY_USER, Facts, State
from corral.node.status.pod_status import pod_status
from corral.node.status.vmi_status import instance_status

NOW = 1_767_225_600.0
ADDRESS = "10.244.0.7"


class Agent:
    """Answers as a test says."""

    def __init__(self):
        self.probes = []
        self.well = True

    def _answer(self, handler):
        self.probes.append((handler, asyncio.get_running_loop().time()))
        if not self.well:
            raise GuestError("the guest agent does not answer")

    async def ping(self):
        self._answer("ping")

    async def run(self, command, typed=b""):
        self._answer(" ".join(command))
        return Finished(exit_code=int(command[0] == "false"), errors=b"it\x1bis\nfalse")


class Machine:
    """What probes ask of a machine."""

    def __init__(self):
        self.facts = Facts(state=State.RUNNING, addresses=(ADDRESS,))
        self.record = SimpleNamespace(started_at=NOW)
        self.agent = Agent()
        self.shuts_down = False
        self.ended_within = None
        """The grace that it was given."""
        self.guest = SimpleNamespace(agent=self.agent)
        self.identified = asyncio.Event()
        self.identified.set()

    async def until_identified(self):
        await self.identified.wait()

    def set_facts(self, facts):
        self.facts = facts

    @property
    def stopping(self):
        return self.ended_within is not None or self.shuts_down

    def stop_unhealthy(self, why, seconds):
        self.facts = replace(self.facts, unhealthy=why)
        self.ended_within = seconds


class MachineEvents:
    """Keeps the recorded events."""

    def __init__(self):
        self.said = []

    def pod_event(self, kind, reason, message):
        self.said.append((kind, reason, message))


class Server(asyncio.Protocol):
    """Answers each request at once."""

    def __init__(self, requests, result):
        self.requests = requests
        self.result = result

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.requests.append(data)
        self.transport.write(self.result(data))
        self.transport.close()


async def connected(server):
    """The other end of a connection to a server."""
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: server, sock=theirs)
    return ours


class Site:
    """A network with a server that answers each request with the same."""

    def __init__(self, result=b"HTTP/1.1 200 OK\r\n\r\n"):
        self.result = result
        self.requests = []
        self.connected = []

    async def connect(self, address, port):
        self.connected.append((address, port))
        if self.result is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return await connected(Server(self.requests, lambda _: self.result))


def instance(phase="Scheduled", **probes):
    document = {
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {
                "devices": {
                    "interfaces": [
                        {
                            "name": "default",
                            "masquerade": {},
                            "ports": [{"name": "web", "port": 80}],
                        }
                    ]
                }
            },
            **probes,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def machine(monkeypatch):
    """One that has just started, however long the host takes."""
    monkeypatch.setattr("corral.node.probes.prober.time", SimpleNamespace(time=lambda: NOW))
    return Machine()


@pytest.fixture
def recorder():
    return MachineEvents()


async def watched(machine, recorder, vmi, seconds, network=None):
    """Let its probes run for so long."""
    async with Background() as tasks:
        tasks.start(Prober(vmi, Ports(network), recorder).run(machine), name="probes")
        await asyncio.sleep(seconds)


def seconds_of(agent):
    return [round(when) for _, when in agent.probes]


@pytest.mark.parametrize(
    ("success", "failure", "answers", "verdicts"),
    [
        (1, 3, "yes no no yes no no no yes", "+ + + + + + - +"),
        (2, 1, "yes yes no yes yes", ". + - - +"),
        (0, 0, "no no no yes", ". . - +"),
    ],
)
def test_results_change_after_threshold_consecutive_responses(success, failure, answers, verdicts):
    history = ProbeHistory(Probe(success_threshold=success, failure_threshold=failure))
    seen = []
    for result in answers.split():
        history = history.with_result(result == "yes")
        seen.append({None: ".", True: "+", False: "-"}[history.verdict])
    assert " ".join(seen) == verdicts


@pytest.mark.looptime
async def test_probes_keep_to_their_delay_and_period(machine, recorder):
    probe = {"guestAgentPing": {}, "initialDelaySeconds": 20, "periodSeconds": 5}
    await watched(machine, recorder, instance(readinessProbe=probe), 36)
    assert seconds_of(machine.agent) == [20, 25, 30, 35]
    assert machine.facts.ready is True
    assert not recorder.said


@pytest.mark.looptime
async def test_a_fork_is_probed_once_it_has_an_identity_of_its_own(machine, recorder):
    machine.identified.clear()
    async with Background() as tasks:
        vmi = instance(readinessProbe={"guestAgentPing": {}})
        tasks.start(Prober(vmi, Ports(None), recorder).run(machine), name="probes")
        await asyncio.sleep(7)
        assert not machine.agent.probes
        machine.identified.set()
        await asyncio.sleep(0.1)
        assert seconds_of(machine.agent) == [7]


@pytest.mark.looptime
@pytest.mark.parametrize(("ago", "left"), [(0, 300), (100, 200), (300, 0), (9e8, 0), (-9e8, 300)])
async def test_a_restarted_manager_waits_for_the_rest_of_the_initial_delay(
    machine, recorder, ago, left
):
    machine.record.started_at -= ago
    probe = {"guestAgentPing": {}, "initialDelaySeconds": 300, "periodSeconds": 1000}
    await watched(machine, recorder, instance("Running", readinessProbe=probe), 301)
    assert seconds_of(machine.agent) == [left]


@pytest.mark.looptime
async def test_a_machine_without_probes_is_not_probed(machine, recorder):
    await watched(machine, recorder, instance(), 100)
    await watched(machine, recorder, None, 100)
    assert not machine.agent.probes
    assert machine.facts.ready is None


@pytest.mark.looptime
async def test_readiness_follows_the_probe(machine, recorder):
    probe = {"guestAgentPing": {}, "periodSeconds": 1, "failureThreshold": 2}
    prober = Prober(instance(readinessProbe=probe), Ports(None), recorder)
    async with Background() as tasks:
        tasks.start(prober.run(machine), name="probes")
        await asyncio.sleep(0.5)
        assert machine.facts.ready is True
        machine.agent.well = False
        await asyncio.sleep(1)
        assert machine.facts.ready is True, "once is not enough"
        await asyncio.sleep(1)
        assert machine.facts.ready is False
        machine.agent.well = True
        await asyncio.sleep(1)
        assert machine.facts.ready is True
    unhealthy = "Readiness probe failed: the guest agent does not answer"
    assert recorder.said == [("Warning", "Unhealthy", unhealthy)] * 2
    assert machine.ended_within is None


@pytest.mark.looptime
async def test_a_paused_guest_is_not_probed(machine, recorder):
    machine.facts = Facts(state=State.RUNNING, paused=PAUSED_BY_USER)
    await watched(machine, recorder, instance(readinessProbe={"guestAgentPing": {}}), 100)
    assert not machine.agent.probes


@pytest.mark.looptime
async def test_failures_of_a_frozen_guest_do_not_count(machine, recorder):
    vmi = instance(livenessProbe={"exec": {"command": ["false"]}, "failureThreshold": 1})
    machine.facts = replace(machine.facts, frozen=True)
    await watched(machine, recorder, vmi, 100)
    assert not machine.agent.probes
    vmi.status.fs_freeze_status = "frozen"
    machine.facts = replace(machine.facts, frozen=None)
    await watched(machine, recorder, vmi, 100)
    assert not machine.agent.probes, "an earlier manager has frozen it"
    machine.facts = replace(machine.facts, frozen=False)
    await watched(machine, recorder, vmi, 100)
    assert machine.ended_within is not None


@pytest.mark.looptime
async def test_failures_of_a_guest_frozen_during_a_probe_do_not_count(machine, recorder):
    async def mute():
        await asyncio.sleep(0.5)
        machine.facts = replace(machine.facts, frozen=True)
        await asyncio.sleep(60)

    machine.agent.ping = mute
    probe = {"guestAgentPing": {}, "failureThreshold": 1}
    await watched(machine, recorder, instance(livenessProbe=probe), 100)
    assert machine.ended_within is None
    assert not recorder.said


@pytest.mark.looptime
async def test_a_failed_liveness_probe_stops_the_machine(machine, recorder):
    machine.agent.well = False
    probe = {"guestAgentPing": {}, "periodSeconds": 2, "failureThreshold": 3}
    vmi = instance(livenessProbe=probe, terminationGracePeriodSeconds=7)
    await watched(machine, recorder, vmi, 60)
    assert machine.ended_within == 7
    assert machine.facts.unhealthy == "the guest agent does not answer"
    assert seconds_of(machine.agent) == [0, 2, 4]
    assert recorder.said[-1][1] == "Killing"


@pytest.mark.looptime
@pytest.mark.parametrize("during_probe", [False, True])
async def test_a_terminating_machine_is_not_probed_for_liveness(machine, recorder, during_probe):
    async def end():
        machine.shuts_down = True
        raise GuestError("the guest agent does not answer")

    machine.shuts_down = not during_probe
    machine.agent.ping = end
    vmi = instance(livenessProbe={"guestAgentPing": {}, "failureThreshold": 1})
    await watched(machine, recorder, vmi, 60)
    assert machine.ended_within is None
    assert "Killing" not in {reason for _, reason, _ in recorder.said}


@pytest.mark.looptime
async def test_a_probe_has_a_timeout(machine, recorder):
    async def never():
        await asyncio.Event().wait()

    machine.agent.ping = never
    probe = {"guestAgentPing": {}, "timeoutSeconds": 3, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 4)
    assert machine.facts.ready is False
    assert recorder.said[0][2] == "Readiness probe failed: no answer within 3 s"


@pytest.mark.looptime
@pytest.mark.parametrize(("command", "ready"), [("true", True), ("false", False)])
async def test_an_exec_probe_runs_in_the_guest(machine, recorder, command, ready):
    probe = {"exec": {"command": [command]}, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 1)
    assert machine.facts.ready is ready
    if not ready:
        assert "the command exited with 1: it is false" in recorder.said[0][2]


@pytest.mark.looptime
async def test_an_exec_probe_that_times_out_fails(machine, recorder):
    begun = []

    async def run(command, typed=b""):
        begun.append(command)
        await asyncio.sleep(10.5)
        return Finished(exit_code=0)

    machine.agent.run = run
    probe = {"exec": {"command": ["slow"]}, "failureThreshold": 4}
    await watched(machine, recorder, instance(livenessProbe=probe), 40)
    assert machine.ended_within is not None
    assert len(begun) == 2, "no second one while the first one runs"


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("result", "ready"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.0 302 Found\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"SSH-2.0-dropbear\r\n", False),
        (b"", False),
        (b"x" * 100_000, False),
        (None, False),
    ],
)
async def test_an_http_probe(machine, recorder, result, ready):
    site = Site(result)
    headers = [{"name": "host", "value": "x"}, {"name": "a", "value": "b\r\nc: d"}]
    action = {"port": "web", "path": "up", "httpHeaders": headers}
    probe = {"httpGet": action, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 1, site)
    assert machine.facts.ready is ready
    assert site.connected == [(ADDRESS, 80)]
    if site.requests:
        lines = site.requests[0].split(b"\r\n")
        assert lines[0] == b"GET /up HTTP/1.1"
        assert {b"host: x", b"a: bc: d", b"Connection: close"} <= set(lines)
        assert b"c: d" not in lines


@pytest.mark.looptime
async def test_a_tcp_probe(machine, recorder):
    probe = {"tcpSocket": {"port": 22}, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 1, Site())
    assert machine.facts.ready is True
    await watched(machine, recorder, instance(readinessProbe=probe), 1, Site(None))
    assert machine.facts.ready is False
    assert "dial tcp 10.244.0.7:22: connect: connection refused" in recorder.said[0][2]


@pytest.mark.looptime
@pytest.mark.parametrize("host", ["a" * 64 + ".example", "nul\0", "a]b", "[x", "a\u2100b"])
@pytest.mark.parametrize(("way", "message"), [("tcpSocket", "dial tcp"), ("httpGet", "Get ")])
async def test_an_invalid_host_of_a_probe_is_reported(machine, recorder, host, way, message):
    probe = {way: {"port": 22, "host": host}, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 1, Loopback())
    assert machine.facts.ready is False
    assert message in recorder.said[0][2]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "10.244.0.8"])
@pytest.mark.parametrize("way", ["tcpSocket", "httpGet"])
async def test_a_probe_cannot_connect_to_the_host_or_other_pods(machine, recorder, host, way):
    site, cluster = Site(), Destinations(cluster=(ip_network("10.244.0.0/16"),))
    handler = ProbeHandler(
        instance(), msgspec.convert({way: {"port": 22, "host": host}}, Probe), Ports(site, cluster)
    )
    result = await handler.run(machine)
    assert f"{host} is not connected to: its address is" in result.failure
    assert site.connected == []


async def test_a_probe_can_connect_to_its_machine_and_allowed_hosts(machine):
    site, cluster = Site(), Destinations(cluster=(ip_network("10.244.0.0/16"),))
    for host in ("", machine.facts.address, "198.51.100.7"):
        probe = msgspec.convert({"tcpSocket": {"port": 22, "host": host}}, Probe)
        assert (
            await ProbeHandler(instance(), probe, Ports(site, cluster)).run(machine)
            == ProbeResult()
        )
    assert [address for address, _ in site.connected] == ["10.244.0.7"] * 2 + ["198.51.100.7"]


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (socket.EAI_NONAME, "no such host"),
        (socket.EAI_AGAIN, "temporary failure in name resolution"),
    ],
)
async def test_an_unresolvable_name_is_reported(machine, monkeypatch, number, why):
    def looked_up(*_):
        raise socket.gaierror(number, "Temporary failure in name resolution")

    monkeypatch.setattr("corral.node.host.destinations._resolve", looked_up)
    probe = msgspec.convert({"tcpSocket": {"port": 80, "host": "db.example"}}, Probe)
    result = await ProbeHandler(instance(), probe, Ports(Site())).run(machine)
    assert result.failure == f"dial tcp: lookup db.example: {why}"


@pytest.mark.looptime
async def test_an_undeclared_port_name_is_reported(machine, recorder):
    probe = {"httpGet": {"port": "nosuch"}, "failureThreshold": 1}
    await watched(machine, recorder, instance(readinessProbe=probe), 1, Site())
    assert "no interface has a port named 'nosuch'" in recorder.said[0][2]


@pytest.mark.looptime
async def test_a_redirect_to_another_host_succeeds_with_a_warning(machine, recorder):
    site = Site(b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n")
    await watched(machine, recorder, instance(readinessProbe={"httpGet": {"port": 80}}), 1, site)
    assert machine.facts.ready is True
    warning = "Readiness probe warning: Probe terminated redirects"
    assert recorder.said == [("Warning", "ProbeWarning", warning)]


LATE = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


class Silent(Site):
    """Takes connections late, or never."""

    async def connect(self, address, port):
        await asyncio.sleep(60)
        return await super().connect(address, port)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ({"tcpSocket": {"port": "web"}}, f"dial tcp {ADDRESS}:80: i/o timeout"),
        (
            {"httpGet": {"port": 80, "path": "/up"}},
            f'Get "http://{ADDRESS}:80/up": {LATE}',
        ),
    ],
)
async def test_a_silent_port_is_reported(machine, recorder, probe, why):
    vmi = instance(readinessProbe={**probe, "failureThreshold": 1})
    await watched(machine, recorder, vmi, 5, Silent())
    assert machine.facts.ready is False
    assert recorder.said[0][2] == f"Readiness probe failed: {why}"


@pytest.mark.looptime
async def test_probes_keep_their_period_however_long_responses_take(machine, recorder):
    async def slow():
        machine.agent.probes.append(("ping", asyncio.get_running_loop().time()))
        await asyncio.sleep(2.5)

    machine.agent.ping = slow
    probe = {"guestAgentPing": {}, "periodSeconds": 5, "timeoutSeconds": 4}
    await watched(machine, recorder, instance(readinessProbe=probe), 16)
    assert seconds_of(machine.agent) == [0, 5, 10, 15]


@pytest.mark.looptime
async def test_a_hanging_command_is_not_started_again(machine, recorder):
    ends = asyncio.Event()

    async def hang(command, typed=b""):
        machine.agent.probes.append((command[0], asyncio.get_running_loop().time()))
        await ends.wait()
        return Finished(exit_code=0)

    machine.agent.run = hang
    probe = {"exec": {"command": ["check"]}, "periodSeconds": 5, "failureThreshold": 1}
    prober = Prober(instance(readinessProbe=probe), Ports(None), recorder)
    async with Background() as tasks:
        tasks.start(prober.run(machine), name="probes")
        await asyncio.sleep(22)
        assert seconds_of(machine.agent) == [0], "there is one of it, which is waited for"
        assert machine.facts.ready is False
        ends.set()
        await asyncio.sleep(5)
        assert machine.facts.ready is True
        assert seconds_of(machine.agent) == [0, 25]


# -- as the pod shows it

RUNNING = Facts(state=State.RUNNING)


def shown(facts, before=None):
    """Whether the pod is ready, and the status that says so."""
    status = {"containerStatuses": before} if before else {}
    spec = {
        "containers": [
            {"name": "compute", "readinessProbe": {"tcpSocket": {"port": 22}}},
            {"name": "volumeroot"},
        ],
        "readinessGates": [{"conditionType": UNPAUSED}],
    }
    document = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    made = pod_status(facts, msgspec.convert(document, Pod), "192.0.2.1", "2026-01-01T00:00:00Z")
    conditions = {one["type"]: one for one in made["conditions"]}
    return conditions["Ready"]["status"] == "True", conditions, made["containerStatuses"]


def test_a_pod_waits_for_its_probe():
    ready, conditions, containers = shown(RUNNING)
    assert not ready
    assert conditions["Ready"]["reason"] == "ContainersNotReady"
    assert conditions["Ready"]["message"] == "containers with unready status: [compute]"
    assert conditions["ContainersReady"]["status"] == "False"
    assert [one["ready"] for one in containers] == [False, True]
    assert shown(replace(RUNNING, ready=True))[0]
    assert not shown(replace(RUNNING, ready=False))[0]


def test_a_restarted_manager_keeps_the_results_of_probes():
    before = [{"name": "compute", "ready": True, "image": "", "imageID": "", "restartCount": 0}]
    assert shown(RUNNING, before)[0]
    assert not shown(replace(RUNNING, ready=False), before)[0]


def test_the_readiness_gate_is_false_while_a_machine_is_paused():
    ready, conditions, _ = shown(replace(RUNNING, ready=True))
    assert ready
    assert conditions[UNPAUSED]["status"] == "True"
    ready, conditions, _ = shown(replace(RUNNING, ready=True, paused=PAUSED_BY_USER))
    assert not ready
    assert conditions["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert (conditions[UNPAUSED]["status"], conditions[UNPAUSED]["reason"]) == ("False", "Paused")


# -- beside probes, what else a guest's agent brings


def test_a_frozen_guest_is_reported_until_it_is_thawed():
    frozen = instance_status(replace(RUNNING, frozen=True), instance("Running"), Pod(), "now")
    assert frozen["fsFreezeStatus"] == "frozen"
    seen = instance("Running")
    seen.status.fs_freeze_status = "frozen"
    assert "fsFreezeStatus" not in instance_status(
        replace(RUNNING, frozen=True), seen, Pod(), "now"
    )
    thawed = instance_status(replace(RUNNING, frozen=False), seen, Pod(), "now")
    assert thawed["fsFreezeStatus"] is None
    assert "fsFreezeStatus" not in instance_status(RUNNING, seen, Pod(), "now"), "a new manager"
