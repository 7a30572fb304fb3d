"""Hosts that share a directory, with what befalls them: no disk is ever had by two machines.

Time is a number here, and each host acts in turns of its own; the leases, the heartbeats and the
decision to take a lease over are the real ones, on real files.  Two machines want one disk; what
the control plane and the fencing of nodes do with them is ADR 0054's, in a few lines.
"""

import random
from dataclasses import dataclass, field

import pytest

from corral.api.kinds.core import node_lease
from corral.node.storage import InUse
from corral.node.storage.host_heartbeats import INTERVAL_SECONDS, HostHeartbeats
from corral.node.storage.lease_files import LeaseFiles
from corral.node.storage.shared_leases import SharedLeases

DISK = "disk"
HOSTS = "abc"
STEPS = 400


class Files(LeaseFiles):
    """The leases as a host has them: nothing is released while the directory hangs."""

    def __init__(self, site, host):
        super().__init__(site.directory)
        self._site, self._name = site, host

    def release(self, handle, holder):
        if not self._site.hosts[self._name].reaches_directory:
            raise OSError(5, "the directory does not answer")
        super().release(handle, holder)


class Leases(SharedLeases):
    """Leases of a host that asks the simulated API for pods."""

    def __init__(self, site, host):
        heartbeats = HostHeartbeats(site.directory, host, host, lambda: site.now)
        super().__init__(Files(site, host), heartbeats, None, host)
        self.heartbeats, self._site, self._name = heartbeats, site, host

    def has_ended(self, uid):
        return self._site.hosts[self._name].reaches_api and uid not in self._site.pods


@dataclass
class Host:
    """A host: its process, its ways to the API and the directory, and its QEMU, by uid."""

    name: str
    leases: Leases
    is_up: bool = True
    has_agent: bool = True
    reaches_api: bool = True
    reaches_directory: bool = True
    renewed: float = 0.0
    beaten: float = float("-inf")
    qemus: set = field(default_factory=set)


class Site:
    """The hosts, and the pods of the machines: ``pods`` names the host of each uid."""

    def __init__(self, directory, chance):
        self.directory, self.chance, self.now = directory, chance, 0.0
        self.pods, self.made, self.starts, self.passed = {}, 0, 0, 0
        self.hosts = {}
        for name in HOSTS:
            self.hosts[name] = Host(name, Leases(self, name))
        LeaseFiles(directory).create(DISK)

    def run(self):
        for _ in range(STEPS):
            self.now += self.chance.uniform(0.2, 4.0)
            self.control()
            self.befall(self.hosts[self.chance.choice(HOSTS)])
            for name in self.chance.sample(HOSTS, len(HOSTS)):
                self.act(self.hosts[name])
                running = [(each.name, uid) for each in self.hosts.values() for uid in each.qemus]
                assert len(running) <= 1, f"at {self.now}: {running}"

    # -- the control plane

    def control(self):
        """Replace machines whose node has been silent; there are two, which want the one disk."""
        for uid, name in list(self.pods.items()):
            if self.now - self.hosts[name].renewed >= node_lease.REPLACEMENT_SECONDS:
                del self.pods[uid]
        ready = [each.name for each in self.hosts.values() if self.now - each.renewed < 15]
        while len(self.pods) < 2 and ready:
            self.made += 1
            self.pods[f"uid{self.made}"] = self.chance.choice(ready)

    def befall(self, host):
        """Let something happen to a host, maybe."""
        what = self.chance.random()
        if what < 0.02:
            host.reaches_api = not host.reaches_api
        elif what < 0.03:
            host.reaches_directory = not host.reaches_directory
        elif what < 0.05:
            host.has_agent = False
        elif what < 0.06:
            host.is_up, host.has_agent = False, False
            host.qemus.clear()
        elif what < 0.20:
            self.recover(host)
        elif what < 0.22 and host.reaches_directory and host.has_agent:
            # An administrator takes the host for dead; not one whose directory hangs as well.
            self.take_for_dead(host)
        elif what < 0.222:
            self.hang()
            self.take_for_dead(host)

    def take_for_dead(self, host):
        self.pods = {uid: name for uid, name in self.pods.items() if name != host.name}

    def hang(self):
        """Let the directory hang for all hosts, until all of them reach it again at once."""
        self.now += self.chance.uniform(10.0, 200.0)
        for host in self.hosts.values():
            if host.has_agent and host.reaches_api:
                host.renewed = self.now
            elif self.now - host.renewed >= node_lease.WATCHDOG_SECONDS:
                host.qemus.clear()  # by the watchdog

    def recover(self, host):
        host.reaches_api = host.reaches_directory = True
        if not host.has_agent:
            host.is_up = host.has_agent = True
            host.leases = Leases(self, host.name)
            host.leases.recover(host.qemus)

    # -- a host

    def act(self, host):
        if not host.is_up:
            return
        if self.now - host.renewed >= node_lease.WATCHDOG_SECONDS:
            host.qemus.clear()  # by the watchdog
        if not host.has_agent:
            return
        if self.now - host.renewed >= node_lease.SECONDS:
            self.end(host, set(host.qemus))
        if host.reaches_api:
            self.end(host, host.qemus - self.pods.keys())
            host.renewed = self.now
        if host.reaches_directory:
            self.beat(host)
            self.start(host)

    def beat(self, host):
        if self.now - host.beaten >= INTERVAL_SECONDS:
            host.beaten = self.now
            host.leases.heartbeats.beat()
            host.leases.heartbeats.observe()
            host.leases.retry()

    def end(self, host, uids):
        """End machines; where the directory hangs, their leases stay until it answers."""
        for uid in uids:
            host.qemus.discard(uid)
            host.leases.release_blocking(DISK, uid)

    def start(self, host):
        mine = [uid for uid, name in self.pods.items() if name == host.name]
        if not host.reaches_api or not mine or host.qemus:
            return
        uid = self.chance.choice(mine)
        before = LeaseFiles(self.directory).holders(DISK)
        try:
            host.leases.acquire_blocking(DISK, uid, alone=True)
        except InUse:
            return
        self.passed += any(each.host != host.name for each in before)
        self.starts += 1
        host.qemus.add(uid)


@pytest.mark.parametrize("block", range(4))
async def test_no_disk_is_had_by_two_machines(tmp_path, block, monkeypatch):
    monkeypatch.setattr("corral.files.sync_directory", lambda _path: None)
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)
    starts = passed = 0
    for seed in range(block * 8, block * 8 + 8):
        site = Site(tmp_path / str(seed), random.Random(seed))
        site.run()
        starts, passed = starts + site.starts, passed + site.passed
    assert starts > 25
    assert passed > 0, "leases of dead hosts pass on at all"
