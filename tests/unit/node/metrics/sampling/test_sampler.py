"""What the sampler knows, and what it must not pretend to know."""

import asyncio
import errno

import pytest
from lightkube.models.core_v1 import Container, Pod, PodSpec
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.object import Key
from corral.node.hypervisor import GuestError, Usage
from corral.node.metrics.sampling.sampler import PERIOD_SECONDS, RunningPod, Sampler
from corral.node.state.facts import Facts, State

MIB = 1 << 20
SECOND = 10**9


class Guest:
    """Takes what a test says; ``usage`` counts how often it was looked at."""

    def __init__(self, cpu_nanos=5 * SECOND, memory_bytes=64 * MIB):
        self.took = Usage(cpu_nanos, memory_bytes)
        self.looks = 0

    def usage(self):
        self.looks += 1
        return self.took

    def work(self, seconds, memory_bytes=64 * MIB):
        self.took = Usage(self.took.cpu_nanos + round(seconds * SECOND), memory_bytes)


class Machine:
    def __init__(self, guest):
        self._guest = guest
        self.facts = Facts(state=State.RUNNING)

    @property
    def guest(self):
        if self._guest is None:
            raise GuestError("the machine does not run")
        return self._guest

    def run(self, guest):
        self._guest = guest


def running(name, guest, *, sidecar=False):
    containers = [Container(name="compute"), Container(name="volumedisk")]
    init = [Container(name="prepare")]
    if sidecar:
        init.append(Container(name="guest-console-log", restartPolicy="Always"))
    pod = Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=PodSpec(containers=containers, initContainers=init),
    )
    return RunningPod(pod, Machine(guest))


class Watched:
    """A sampler of one node, or of several, and of a host that a test moves."""

    def __init__(self, nodes=("here",)):
        self.host = Usage(1000 * SECOND, 4096 * MIB)
        self.running_pods = {node: [] for node in nodes}
        self.fails = False
        self.sampler = Sampler(host=self.read_host, clock=lambda: 1_790_000_000.0)
        for node, running_pods in self.running_pods.items():
            self.sampler.add(node, lambda running_pods=running_pods: running_pods)

    def read_host(self):
        if self.fails:
            raise OSError(errno.EMFILE, "too many open files")
        return self.host

    async def look(self, *, seconds=15.0, host=1.0):
        """Look after so many seconds, in which the host was busy for some."""
        self.host = Usage(self.host.cpu_nanos + round(host * SECOND), self.host.memory_bytes)
        await asyncio.sleep(seconds)
        self.sampler.sample()

    def pod(self, name):
        return self.sampler.pod_metrics(Key("default", name))

    def node(self, name="here"):
        return self.sampler.node_metrics(Key("", name))


def usages(metrics):
    return {one.name: one.usage for one in metrics.containers}


pytestmark = pytest.mark.looptime


async def test_usage_of_a_pod_is_the_rate_between_two_samples():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("busy", guest, sidecar=True))
    await watched.look()
    guest.work(3.75, memory_bytes=100 * MIB)
    await watched.look()
    metrics = watched.pod("busy")
    assert (metrics.window, metrics.timestamp) == ("15s", "2026-09-21T14:13:20Z")
    assert usages(metrics) == {
        "compute": {"cpu": "250m", "memory": "100Mi"},
        "volumedisk": {"cpu": "0", "memory": "0"},
        "guest-console-log": {"cpu": "0", "memory": "0"},
    }


async def test_one_sample_gives_no_usage():
    """A guest that was found by a new manager has taken much, long ago."""
    watched = Watched()
    watched.running_pods["here"].append(running("found", Guest(cpu_nanos=9999 * SECOND)))
    await watched.look()
    assert watched.pod("found") is None
    assert watched.node() is None


async def test_another_guest_in_the_same_pod_starts_afresh():
    watched, one = Watched(), running("restarted", Guest(cpu_nanos=9 * SECOND))
    watched.running_pods["here"].append(one)
    await watched.look()
    await watched.look()
    one.machine.run(Guest(cpu_nanos=20 * SECOND))
    await watched.look()
    assert watched.pod("restarted") is None
    await watched.look()
    assert usages(watched.pod("restarted"))["compute"]["cpu"] == "0"


async def test_a_decreased_counter_gives_no_rate():
    watched, guest = Watched(), Guest(cpu_nanos=9 * SECOND)
    watched.running_pods["here"].append(running("odd", guest))
    await watched.look()
    guest.work(-8)
    await watched.look()
    assert watched.pod("odd") is None
    guest.work(1.5)
    await watched.look()
    assert usages(watched.pod("odd"))["compute"]["cpu"] == "100m"


async def test_a_paused_guest_has_zero_usage():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("paused", guest))
    await watched.look()
    await watched.look()
    assert usages(watched.pod("paused"))["compute"] == {"cpu": "0", "memory": "64Mi"}


async def test_finished_guests_have_no_usage():
    watched, guest = Watched(), Guest()
    gone, lost, left = (running(name, guest) for name in ("gone", "lost", "left"))
    watched.running_pods["here"] += [gone, lost, left]
    await watched.look()
    await watched.look()
    gone.machine.facts = Facts(state=State.ENDED)
    assert watched.pod("gone") is None, "at once"
    lost.machine.run(None)
    watched.running_pods["here"].remove(left)
    await watched.look()
    assert watched.pod("lost") is None
    assert watched.pod("left") is None


async def test_a_guest_that_ends_between_two_samples_is_left_out():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("ending", guest))
    await watched.look()
    guest.took = None
    await watched.look()
    assert watched.pod("ending") is None


async def test_a_late_sample_has_a_longer_window():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("busy", guest))
    await watched.look()
    guest.work(75.5)
    await watched.look(seconds=75.5)
    metrics = watched.pod("busy")
    assert (metrics.window, usages(metrics)["compute"]["cpu"]) == ("1m15.5s", "1")


async def test_a_node_has_the_usage_of_its_host():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("busy", guest))
    await watched.look()
    guest.work(3)
    await watched.look(host=7.5)
    assert watched.node().usage == {"cpu": "500m", "memory": "4Gi"}


async def test_nodes_of_one_host_share_its_other_usage():
    watched, guest = Watched(nodes=("a", "b")), Guest()
    watched.running_pods["a"].append(running("busy", guest))
    await watched.look()
    guest.work(6)
    await watched.look(host=7.5)
    assert watched.node("a").usage == {"cpu": "450m", "memory": "2080Mi"}
    assert watched.node("b").usage == {"cpu": "50m", "memory": "2016Mi"}


async def test_a_guest_is_sampled_once_in_15_seconds():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("busy", guest))
    task = asyncio.ensure_future(watched.sampler.run())
    for _ in range(100):
        await asyncio.sleep(PERIOD_SECONDS / 25)
        watched.pod("busy")
    task.cancel()
    assert guest.looks == 4 + 1


async def test_an_unreadable_host_leaves_a_gap():
    watched, guest = Watched(), Guest()
    watched.running_pods["here"].append(running("busy", guest))
    await watched.look()
    await watched.look()
    watched.fails = True
    await watched.look()
    assert (watched.pod("busy"), watched.node()) == (None, None)
    watched.fails = False
    await watched.look(host=10)
    assert (watched.pod("busy"), watched.node()) == (None, None)
    guest.work(1.5)
    await watched.look(host=3)
    assert usages(watched.pod("busy"))["compute"]["cpu"] == "100m"
    assert watched.node().usage["cpu"] == "200m"
