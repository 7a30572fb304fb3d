"""Controllers and nodes as processes of their own, on an API server that is not theirs.

By default that is our own, alone, with the stand-ins in a further process.  With
``CORRAL_CLUSTER_KUBECONFIG`` it is the one of that file, in which corral's kinds and accounts are.
"""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import free_port
from tests.cluster import KUBECTL, outside, run, until
from tests.hosts import is_ready

from corral.daemon.install import rbac
from corral.daemon.install.options import CONTROLLERS, NAMESPACE, NODE, Options

FOREIGN = "CORRAL_CLUSTER_KUBECONFIG"
LEASE = "corral-controllers"


@dataclass
class Process:
    """A corral command; ``log`` has its output, ``port`` serves its health or its kubelet's API."""

    words: list[str]
    log: Path
    port: int
    popen: subprocess.Popen

    @classmethod
    def start(cls, log: Path, port: int, *words: str) -> "Process":
        command = [sys.executable, "-m", "corral", *words]
        with log.open("ab") as output:
            popen = subprocess.Popen(command, stdout=output, stderr=output)
        return cls(list(words), log, port, popen)

    def get(self, path: str) -> str:
        """Return the response at a path; empty if there is none."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def leads(self) -> bool:
        return f'leader_election_master_status{{name="{LEASE}"}} 1.0' in self.get("/metrics")

    def end(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@dataclass
class Separate:
    """An API server, and what is started for it; ``namespace`` is the tests' own.

    directory: data, logs and kubeconfigs; is_ours: whether it is our own server.
    """

    directory: Path
    kubeconfig: Path
    namespace: str
    is_ours: bool
    stack: contextlib.ExitStack
    controllers: list[Process] = field(default_factory=list)
    nodes: dict[str, Process] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        cache = {"KUBECACHEDIR": str(self.directory / "kubecache")}
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), **cache}

    def kubectl(self, *words: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        command = [KUBECTL, "-n", self.namespace, *words]
        return run(command, self.environment(), check=check, input=input)

    def get(self, *words: str) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def items(self, *words: str) -> list[dict]:
        return self.get(*words)["items"]

    def create(self, document: dict) -> None:
        self.kubectl("create", "-f", "-", input=json.dumps(document))

    def corral_command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "corral", *words]

    def corral(self, *words: str) -> str:
        return run(self.corral_command(*words), self.environment(), check=True, input=None)

    def start_controllers(self) -> Process:
        """Start a process of controllers as the account that an installation gives them."""
        port = free_port()
        process = Process.start(
            self.directory / f"controllers-{len(self.controllers)}.log", port,
            "controllers", "--kubeconfig", str(self.account(CONTROLLERS)),
            "--leader-elect-resource-namespace", NAMESPACE,
            "--bind", f"127.0.0.1:{port}",
        )  # fmt: skip
        self.stack.callback(process.end)
        self.controllers.append(process)
        return process

    def leader(self) -> Process:
        until("one leads", lambda: any(each.leads() for each in self.controllers))
        (one,) = [each for each in self.controllers if each.leads()]
        return one

    def start_node(self, name: str, *options: str) -> None:
        """Start a node, which has its certificates by TLS bootstrap."""
        port = free_port()
        process = Process.start(
            self.directory / f"{name}.log", port,
            "node", "--bootstrap-kubeconfig", str(self.account(NODE)), "--name", name,
            "--port", str(port), "--data-dir", str(self.directory / name), *options,
        )  # fmt: skip
        self.stack.callback(process.end)
        self.nodes[name] = process

    def kill_and_restart_node(self, name: str) -> None:
        killed = self.nodes[name]
        killed.kill()
        again = self.nodes[name] = Process.start(killed.log, killed.port, *killed.words)
        self.stack.callback(again.end)

    def account(self, name: str) -> Path:
        """Return a kubeconfig of a ServiceAccount, whose token is in a file, as in a pod."""
        path = self.directory / f"{name}.kubeconfig"
        if not path.exists():
            token = self.kubectl("create", "token", "-n", NAMESPACE, name).strip()
            (self.directory / f"{name}.token").write_text(token)
            document = json.loads(
                self.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
            )
            document["users"][0]["user"] = {"tokenFile": f"{name}.token"}
            path.write_text(json.dumps(document))
        return path

    def node(self, name: str) -> dict:
        return self.get("node", name)

    def is_ready(self, name: str) -> bool:
        return any(
            each["metadata"]["name"] == name and is_ready(each) for each in self.items("nodes")
        )


@contextlib.contextmanager
def separate(directory: Path, *ranges: str) -> Iterator[Separate]:
    """An API server with the accounts and roles of an installation, for the block."""
    namespace = f"cluster-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        given = os.environ.get(FOREIGN)
        kubeconfig = Path(given) if given else _start_server(stack, directory / "server", ranges)
        one = Separate(directory, kubeconfig, namespace, not given, stack)
        if one.is_ours:
            apply = [KUBECTL, "apply", "-f", "-"]
            run(apply, one.environment(), check=True, input=json.dumps(accounts()))
        one.kubectl("create", "namespace", namespace)
        stack.callback(one.kubectl, "delete", "namespace", namespace, "--wait=false")
        yield one


def accounts() -> dict:
    """The accounts of an installation, with their rights.

    Our server has KubeVirt's roles, and nodes have the rights of its Node authorizer.  Bindings get
    names of their own: some of its own bindings have the same ones, for other accounts.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    items = [namespace]
    roles = (rbac.CONTROLLERS_ROLE, rbac.PROVISIONER_ROLE)
    for each in rbac.documents(Options()):
        if any(subject["kind"] == "ServiceAccount" for subject in each.get("subjects", ())):
            each["metadata"]["name"] += ":installed"
            items.append(each)
        elif each["kind"] == "ServiceAccount" or each["metadata"]["name"] in roles:
            items.append(each)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _start_server(stack: contextlib.ExitStack, home: Path, ranges: tuple[str, ...]) -> Path:
    """Start our own API server alone, and Kubernetes' controllers and scheduler beside it."""
    home.mkdir()
    stack.enter_context(outside("--machine", "hollow", "--no-controllers", *ranges, directory=home))
    port = free_port()
    stand_ins = Process.start(
        home.parent / "stand-ins.log", port,
        "stand-ins", "--data-dir", str(home), "--leader-elect=false",
        "--bind", f"127.0.0.1:{port}",
    )  # fmt: skip
    stack.callback(stand_ins.end)
    return home / "kubeconfig"
