"""A manager in a process of its own, and kubectl for it: what tests from outside stand on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from bench.cluster import Cluster, cluster as running
from tests import accelerator

EXAMPLES = Path(__file__).parent.parent / "examples"
KUBECTL = str(Path(sys.executable).with_name("kubectl"))
PATIENCE = 300.0
"""Seconds until a wait gives up: many times what any takes, as only who fails waits so long."""
_POD, _SERVICE, _MOST = 160, 120, 40


def ranges(file: str) -> tuple[str, str, str, str]:
    """The addresses for a test module's machines and Services, which no other module has.

    Modules run beside each other, and each manager of root leads this host's routes to its own.
    """
    here = Path(__file__).parent
    files = sorted([*(here / "e2e").glob("test_*.py"), *(here / "faults").glob("test_*.py")])
    users = [each for each in files if "ranges(__file__)" in each.read_text()]
    number = users.index(Path(file))
    assert number < _MOST, "their numbers would meet"
    pods, services = f"10.{_POD + number}.0.0/16", f"10.{_SERVICE + number}.0.0/16"
    return "--pod-cidr", pods, "--service-cidr", services


@dataclass
class Outside:
    """A running manager, as its users meet it."""

    one: Cluster
    kubectl_program: str = KUBECTL
    through: tuple[str, ...] = ()
    _collections: dict[str, str] = field(default_factory=dict)

    def corral(self, *arguments: str, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        """Run the corral command on this manager's data directory; answers what it printed."""
        return run(
            self.corral_command(*arguments),
            self.corral_environment(),
            check=check,
            input=input,
        )

    def corral_command(self, *arguments: str) -> list[str]:
        return [*self.through, sys.executable, "-m", "corral", *arguments]

    def corral_environment(self) -> dict[str, str]:
        return self.one.environment() | {"CORRAL_DATA_DIR": str(self.one.directory)}

    def kubectl(self, *arguments: str, check: bool = True, input: str | None = None) -> str:  # noqa: A002
        """Run kubectl; answers standard output and error together, as a user sees them."""
        environment = self.one.environment()
        environment["KUBECACHEDIR"] = str(self.one.directory / "kubecache")
        return run([self.kubectl_program, *arguments], environment, check=check, input=input)

    def get(self, resource: str, *words: str) -> dict:
        """Return what ``kubectl get … -o json`` prints, without a kubectl: waits repeat it often.

        Raises RuntimeError where there is no such object.
        """
        options, names, rest = {"-n": "default", "-l": ""}, [], iter(words)
        for word in rest:
            if word in options:
                options[word] = next(rest)
            else:
                names.append(word)
        selector = f"?labelSelector={quote(options['-l'])}" if options["-l"] else ""
        path = "/".join([self._collection(resource).format(options["-n"]), *names])
        return self.one.call("GET", path + selector)

    def items(self, resource: str, *words: str) -> list[dict]:
        return self.get(resource, *words)["items"]

    def _collection(self, resource: str) -> str:
        """The path of a resource's collection, by any of its names; ``{}`` is its namespace."""
        if resource not in self._collections:
            groups = self.one.call("GET", "/apis")["groups"]
            versions = [f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups]
            for version in ("/api/v1", *versions):
                for each in self.one.call("GET", version)["resources"]:
                    within = "namespaces/{}/" if each["namespaced"] else ""
                    aliases = each["name"], each["singularName"], each["kind"].lower()
                    for name in (*aliases, *each.get("shortNames", ())):
                        self._collections.setdefault(name, f"{version}/{within}{each['name']}")
        return self._collections[resource]

    def kill_manager(self) -> None:
        self.one.process.send_signal(signal.SIGKILL)
        self.one.process.wait()


def run(
    command: list[str],
    environment: dict[str, str],
    *,
    check: bool,
    input: str | None,  # noqa: A002
) -> str:
    done = subprocess.run(
        command, env=environment, input=input, text=True, timeout=2 * PATIENCE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


@contextmanager
def outside(
    *arguments: str, directory: Path | None = None, through: tuple[str, ...] = ()
) -> Iterator[Outside]:
    """A manager for the block; its machines end with it.

    ``through`` is a program that runs corral, and its arguments.
    """
    if directory is not None and "hollow" not in arguments:
        accelerator.give_to(directory, *node_names(arguments))
    with running(*arguments, directory=directory, through=through) as one:
        yield Outside(one, through=through)


def node_names(arguments: Sequence[str]) -> list[str]:
    """Return the names of the nodes of a manager with these arguments."""
    host = socket.gethostname().lower()
    if "--nodes" not in arguments:
        return [host]
    count = int(arguments[arguments.index("--nodes") + 1])
    return [host] if count == 1 else [f"{host}-{number}" for number in range(count)]


def until(what: str, holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait from outside, where no event reaches us, until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
