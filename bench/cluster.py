"""A ``corral up`` of our own in a temporary directory, and a plain HTTPS client for it."""

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

READY_SECONDS = 300.0
"""Until who waits for a manager gives up: many times what any takes."""


@dataclass
class Cluster:
    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    ready_seconds: float

    @property
    def user(self) -> dict[str, str]:
        return yaml.safe_load((self.directory / "kubeconfig").read_text())["users"][0]["user"]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.user['token']}", "Content-Type": "application/json"}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.directory / "kubeconfig")}

    def connect(self) -> http.client.HTTPSConnection:
        context = trusting()
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=120)

    def call(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> dict:
        with contextlib.closing(self.connect()) as connection:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {**self.headers, "Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {said[:500]!r}")
            return json.loads(said)

    def settle(self, path: str, count: int, made: Sequence[str]) -> None:
        """Until the set or pool of a collection counts so many, and there are no others.

        Follows its status by watch; ``made`` are the collections of what it makes.
        """
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", f"{path}?watch=true&timeoutSeconds=300", headers=self.headers)
            answer = connection.getresponse()
            while line := answer.readline():
                status = json.loads(line)["object"].get("status", {})
                if status.get("replicas", 0) == status.get("readyReplicas", 0) == count:
                    break
            else:
                raise RuntimeError(f"{path} did not settle within 300 s")
        while any(self.total(each) != count for each in made):
            time.sleep(0.05)

    def total(self, path: str) -> int:
        """How many objects a collection has."""
        listed = self.call("GET", f"{path}?limit=1")
        return len(listed["items"]) + listed["metadata"].get("remainingItemCount", 0)

    def memory_mib(self) -> float:
        """Resident set of the manager."""
        return memory_mib(self.process.pid)

    def cpu_seconds(self) -> float:
        """CPU time of the manager so far."""
        return cpu_seconds(self.process.pid)


def memory_mib(pid: int) -> float:
    """Resident set of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """One that the kernel gives to no connection, so it is still free when it is bound.

    Nor does anybody else get it here, as long as this process lives: its number is the name of a
    socket that is kept until then.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with (
            contextlib.suppress(OSError),
            socket.socket() as listener,
            socket.socket(socket.AF_UNIX) as name,
        ):
            listener.bind(("127.0.0.1", port))
            name.bind(f"\0corral-free-port-{port}")
            name.detach()
            return port


@contextlib.contextmanager
def cluster(
    *arguments: str,
    directory: Path | None = None,
    through: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Run the manager until the block ends; machines it leaves are ended too.

    ``through`` is a program that runs it, and its arguments: as another user, say.  ``environment``
    is what the manager finds in its own beside what is in ours.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-bench."))
            )
        port = free_port()
        command = [
            *through,
            sys.executable,
            "-m",
            "corral",
            "up",
            "--data-dir",
            str(directory),
            "--bind",
            f"127.0.0.1:{port}",
        ]
        log = stack.enter_context((directory / "bench.log").open("ab"))
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
        )
        try:
            wait_ready(process, port, directory)
            yield Cluster(directory, port, process, time.perf_counter() - begun)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # Nobody needs what its guests would do before they end.
            subprocess.run(
                [*through, sys.executable, "-m", "corral", "down", "--grace-period", "0",
                 "--data-dir", str(directory)],
                stdout=log, stderr=log, check=False,
            )  # fmt: skip


def trusting() -> ssl.SSLContext:
    """For a server of our own.  The default context reads all authorities: 30 ms for each call."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def wait_ready(process: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    """Return as soon as ``/readyz`` says ok."""
    context = trusting()
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"corral up ended: {(directory / 'bench.log').read_text()[-2000:]}")
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.01)
    raise RuntimeError(f"corral up did not become ready within {READY_SECONDS:g} s")


def vmi(name: str = "", *, memory: str = "64M", labels: dict[str, str] | None = None) -> dict:
    """A machine such as the user guide's; without a name the server gives one."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            **({"name": name} if name else {"generateName": "vmi-"}),
            "labels": labels or {},
        },
        "spec": {
            "domain": {
                "devices": {"disks": [{"name": "containerdisk", "disk": {"bus": "virtio"}}]},
                "resources": {"requests": {"memory": memory}},
            },
            "volumes": [
                {
                    "name": "containerdisk",
                    "containerDisk": {"image": "kubevirt/cirros-container-disk-demo:latest"},
                }
            ],
        },
    }


def replica_set(name: str, replicas: int, *, memory: str = "64M") -> dict:
    labels = {"bench": name}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": vmi(memory=memory)["spec"]},
        },
    }
