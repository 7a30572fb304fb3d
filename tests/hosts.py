"""Hosts as network namespaces on one bridge, each with a data directory and processes of its own.

A host's commands run in its network namespace, with a host name and a /run of their own.  Names
carry this process' number, so tests run beside each other.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.cluster import Cluster, replica_set, trusting
from tests import accelerator
from tests.cluster import KUBECTL, Outside, run

from corral.config import Layout
from corral.daemon import lock
from corral.node.network.namespaces import Namespace

NETWORK = "198.51.100"
API_PORT, KUBELET_PORT = 6443, 10250
HOLLOW = ("--machine", "hollow")
_INSIDE = 'hostname "$0" && mount -t tmpfs tmpfs /run && exec "$@"'
"""The first process of a command; the namespaces of ip(8), in /run, are out of its sight."""
_CLOCK = Path(__file__).with_name("clock.c")
_NO_ROUTER = "echo 0 > /proc/sys/net/ipv4/ip_forward"


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Host:
    """A host: ``name`` is its host name, ``namespace`` its network namespace."""

    name: str
    number: int
    namespace: str
    directory: Path
    bridge: str

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def layout(self) -> Layout:
        return Layout(self.directory)

    @property
    def pid(self) -> int:
        """The process id of the manager or agent on the data directory."""
        manager = lock.find(self.layout.lock)
        assert manager is not None, f"nothing runs on {self.name}"
        return manager.pid

    def command(self, *words: str) -> list[str]:
        """Return a command on this host."""
        inside = ["unshare", "--mount", "--uts", "sh", "-c", _INSIDE, self.name, *words]
        return ["ip", "netns", "exec", self.namespace, *inside]

    def set_clock(self, seconds: int) -> None:
        """Set the time of day of the host off by some seconds.

        It steps for all processes that were started after the first setting, without that of QEMU
        and the watchdog: they start in an environment of their own.
        """
        if not self._library.exists():
            command = ("cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_CLOCK))
            run(list(command), dict(os.environ), check=True, input=None)
        self._clock.touch()
        with self._clock.open("r+b") as clock:  # processes have mapped this file
            clock.write(struct.pack("=q", seconds))

    @property
    def _clock(self) -> Path:
        return self.directory.with_suffix(".clock")

    @property
    def _library(self) -> Path:
        return self.directory.with_suffix(".so")

    def environment(self) -> dict[str, str]:
        clock = {}
        if self._clock.exists():
            clock = {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET": str(self._clock)}
        return {
            **os.environ,
            **clock,
            "CORRAL_DATA_DIR": str(self.directory),
            "KUBECONFIG": str(self.directory / "kubeconfig"),
            "KUBECACHEDIR": str(self.directory / "kubecache"),
        }

    def run(self, *words: str, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        return run(self.command(*words), self.environment(), check=check, input=input)

    def corral(self, *words: str, check: bool = True) -> str:
        return self.run(sys.executable, "-m", "corral", *words, check=check)

    def kubectl(self, *words: str, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        return self.run(KUBECTL, *words, check=check, input=input)

    def kill(self) -> None:
        """Kill the manager or agent, and wait for its end."""
        descriptor = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
        except ChildProcessError:  # it was detached: the lock says when it has ended
            while lock.find(self.layout.lock) is not None:
                pass
        finally:
            os.close(descriptor)

    def ip(self, *words: str) -> str:
        """Change or show the links and routes of the host, as its command ``ip`` does."""
        return _ip("-n", self.namespace, *words)

    def link(self, state: str) -> None:
        """Set the cable to the bridge ``up`` or ``down``."""
        _ip("-n", self.bridge, "link", "set", f"port{self.number}", state)

    def connect(self, address: str, port: int) -> socket.socket:
        """Return a connection of this host."""
        with Namespace(os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)) as namespace:
            return namespace.run(socket.create_connection, (address, port), 60)

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a listening socket of this host."""
        with Namespace(os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)) as namespace:
            return namespace.run(socket.create_server, (address, port))

    def request(
        self,
        url: tuple[str, int],
        method: str,
        path: str,
        body: object = None,
        *,
        tls: ssl.SSLContext,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send a request from this host; answers the status and the document, or the text."""
        with contextlib.closing(_Connection(self, *url, tls)) as connection:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": kind, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")


class _Connection(http.client.HTTPSConnection):
    """An HTTPS connection of a host."""

    def __init__(self, host: Host, address: str, port: int, tls: ssl.SSLContext) -> None:
        super().__init__(address, port, context=tls, timeout=60)
        self._from, self._tls = host, tls

    def connect(self) -> None:
        plain = self._from.connect(self.host, self.port)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class _HostCluster(Cluster):
    """The API server of the first host, reached from that host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.directory = host.directory

    def connect(self) -> http.client.HTTPSConnection:
        return _Connection(self._host, self._host.address, API_PORT, trusting())


class Site:
    """Some hosts on one bridge; the first one is to run the manager."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self.first = hosts[0]
        self.api = Outside(_HostCluster(self.first))

    def up(self, *options: str) -> None:
        """Start the manager on the first host."""
        _give_accelerator(self.first, options)
        bind = f"{self.first.address}:{API_PORT}"
        self.first.corral("up", "--detach", "--bind", bind, *options)

    @cached_property
    def join_words(self) -> list[str]:
        """The words of ``corral join`` with a token that lasts as long as the tests."""
        return self.first.corral("token", "create", "--print-join-command").split()[1:]

    def join(self, host: Host, *options: str) -> str:
        """Join a host; answers what the command printed."""
        _give_accelerator(host, options)
        return host.corral(*self.join_words, "--detach", *options)

    def nodes(self) -> dict[str, dict]:
        return {each["metadata"]["name"]: each for each in self.api.items("nodes")}

    def ready(self, *hosts: Host) -> bool:
        """Return whether the nodes of these hosts are Ready."""
        nodes = self.nodes()
        return all(each.name in nodes and is_ready(nodes[each.name]) for each in hosts)

    def running(self) -> dict[str, str]:
        """The node of each running VMI, by uid."""
        return {
            each["metadata"]["uid"]: each["status"]["nodeName"]
            for each in self.api.items("vmi")
            if each.get("status", {}).get("phase") == "Running"
        }

    def ready_pods(self) -> dict[str, dict]:
        """The ready pods by node."""
        return {pod["spec"]["nodeName"]: pod for pod in self.api.items("pods") if is_ready(pod)}

    def addresses(self) -> dict[str, str]:
        """The addresses of the ready pods by node."""
        return {node: pod["status"]["podIP"] for node, pod in self.ready_pods().items()}

    def in_guest(self, host: Host, *command: str, check: bool = True) -> str:
        """Run a command in the one guest of a host, from the first host."""
        pods = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in self.api.items("pods")}
        return self.first.kubectl("exec", pods[host.name], "--", *command, check=check)

    def agents_run_commands(self) -> bool:
        """Return whether the agent in the one guest of each host runs commands."""
        return all(self.in_guest(host, "echo", "up", check=False) == "up\n" for host in self.hosts)

    def fetch(self, source: Host, target: Host) -> str:
        """Return the response of a guest's web server on one host to the guest of another."""
        url = f"http://{self.addresses()[target.name]}/"
        return self.in_guest(source, "wget", "-T", "5", "-q", "-O", "-", url, check=False).strip()

    def both_ways(self) -> bool:
        """Return whether the guests of two hosts read from each other."""
        first, second = self.hosts
        names = {pod["metadata"]["labels"]["vm.kubevirt.io/name"] for pod in self.api.items("pods")}
        return {self.fetch(first, second), self.fetch(second, first)} == names


def _give_accelerator(host: Host, options: tuple[str, ...]) -> None:
    if "hollow" not in options:
        accelerator.give_to(host.directory, host.name)


def web_servers(replicas: int) -> dict:
    """A replica set whose VMIs are ready once their web servers answer, on the pod network."""
    document = replica_set("web", replicas)
    spec = document["spec"]["template"]["spec"]
    spec["readinessProbe"] = {
        "httpGet": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 20,
    }  # fmt: skip
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]
    return document


def is_ready(item: dict) -> bool:
    """Return whether a node or pod has the condition Ready."""
    status = item.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return conditions.get("Ready") == "True"


@contextlib.contextmanager
def site(directory: Path, count: int) -> Iterator[Site]:
    """Make hosts for the block; what runs on them ends with it."""
    prefix = f"corral-{os.getpid()}"
    bridge = f"{prefix}-bridge"
    with contextlib.ExitStack() as stack:
        _namespace(stack, bridge)
        _ip("-n", bridge, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", bridge, "link", "set", "bridge0", "up")
        hosts = []
        for number in range(1, count + 1):
            name = f"host{number}"
            host = Host(name, number, f"{prefix}-{name}", directory / name, bridge)
            host.directory.mkdir(mode=0o700)
            _namespace(stack, host.namespace)
            # A new namespace forwards if the machine of the tests does.
            _ip("netns", "exec", host.namespace, "sh", "-c", _NO_ROUTER)
            _cable(host)
            stack.callback(_end, host)
            hosts.append(host)
        yield Site(hosts)


def _namespace(stack: contextlib.ExitStack, name: str) -> None:
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "delete", name)
    _ip("-n", name, "link", "set", "lo", "up")


def _cable(host: Host) -> None:
    """Connect a host to the bridge, by which its default route leads as well."""
    port = f"port{host.number}"
    peer = ("peer", "name", port, "netns", host.bridge)
    host.ip("link", "add", "eth0", "type", "veth", *peer)
    host.ip("address", "add", f"{host.address}/24", "dev", "eth0")
    host.ip("link", "set", "eth0", "up")
    host.ip("route", "add", "default", "via", f"{NETWORK}.254")
    _ip("-n", host.bridge, "link", "set", port, "master", "bridge0", "up")


def _end(host: Host) -> None:
    """End what runs on a host, machines included."""
    host.corral("down", "--grace-period", "0", check=False)


def certificate_of(host: Host) -> ssl.SSLContext:
    """Return TLS with the client certificate of a joined node, as a thief has it."""
    tls = trusting()
    pki = host.layout.pki
    tls.load_cert_chain(pki / "kubelet-client.crt", pki / "kubelet-client.key")
    return tls
