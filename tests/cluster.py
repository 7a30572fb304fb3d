"""A manager in a process of its own, and kubectl for it: what tests from outside stand on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import Cluster, cluster as running

EXAMPLES = Path(__file__).parent.parent / "examples"
KUBECTL = str(Path(sys.executable).with_name("kubectl"))


@dataclass
class Outside:
    """A running manager, as its users meet it."""

    one: Cluster
    kubectl_program: str = KUBECTL
    through: tuple[str, ...] = ()

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

    def get(self, *arguments: str) -> dict:
        """``kubectl get … -o json``."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def items(self, *arguments: str) -> list[dict]:
        return self.get(*arguments)["items"]

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
        command, env=environment, input=input, text=True, timeout=300,
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
    with running(*arguments, directory=directory, through=through) as one:
        yield Outside(one, through=through)


def until(what: str, holds: Callable[[], object], seconds: float = 120) -> None:
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
