"""``kubectl get -w``: it prints what comes until it is stopped."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.conformance.api import until
from tests.conformance.transcript import pattern, plain

pytestmark = pytest.mark.conformance


class Watching:
    """A kubectl that prints on and on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def reads(self, *expected: str) -> None:
        """Read until a line is as written; the time limit of the test bounds it."""
        seen = []
        for wanted in expected:
            for line in self.process.stdout:
                seen.append(plain(line))
                if pattern([wanted]).fullmatch(f"{seen[-1]}\n"):
                    break
            else:
                raise AssertionError(f"kubectl ended before {wanted!r}: {seen}")


@contextmanager
def watching(environment: dict[str, str], *arguments: str) -> Iterator[Watching]:
    with subprocess.Popen(
        ["kubectl", *arguments], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            yield Watching(process)
        finally:
            process.terminate()


def kubectl(environment: dict[str, str], *arguments: str) -> str:
    return subprocess.check_output(["kubectl", *arguments], env=environment, text=True)


@pytest.fixture
def replica_set(shell) -> str:
    kubectl(shell, "create", "-f", f"{shell['EXAMPLES']}/testreplicaset.yaml")
    path = "-o=jsonpath={.status.readyReplicas}"
    asked = ["kubectl", "get", "vmirs", "testreplicaset", path]
    until("three are ready", lambda: subprocess.check_output(asked, env=shell) == b"3")
    return "testreplicaset"


def test_a_set_is_watched_while_it_is_scaled(shell, replica_set):
    with watching(shell, "get", "vmirs", "-w") as seen:
        seen.reads("NAME DESIRED CURRENT READY AGE", "testreplicaset 3 3 3 <age>")
        kubectl(shell, "scale", "vmirs", replica_set, "--replicas=5")
        seen.reads("testreplicaset 5 5 5 <age>")
        kubectl(shell, "scale", "vmirs", replica_set, "--replicas=1")
        seen.reads("testreplicaset 1 1 1 <age>")


def test_one_set_is_watched_by_its_name(shell, replica_set):
    with watching(shell, "get", "vmirs", replica_set, "-w") as seen:
        seen.reads("testreplicaset 3 3 3 <age>")
        kubectl(shell, "scale", "vmirs", replica_set, "--replicas=1")
        seen.reads("testreplicaset 1 1 1 <age>")
        kubectl(shell, "delete", "vmirs", replica_set)


def test_machines_are_watched_from_making_to_running(shell, replica_set):
    with watching(shell, "get", "vmi", "-w", "-l", "myvmi=myvmi") as seen:
        seen.reads("NAME AGE PHASE IP NODENAME READY", *["test<suffix> <age> Running..."] * 3)
        kubectl(shell, "scale", "vmirs", replica_set, "--replicas=4")
        seen.reads("test<suffix> <age> Pending...", "test<suffix> <age> Running...")


def test_pods_are_watched_in_all_namespaces(shell, replica_set):
    with watching(shell, "get", "pods", "-A", "-w") as seen:
        seen.reads("NAMESPACE NAME READY STATUS RESTARTS AGE")
        seen.reads(f"{shell['NAMESPACE']} virt-launcher-test<suffix>-<suffix> 3/3 Running 0 <age>")
        kubectl(shell, "delete", "pods", "--all", "--wait=false")
        seen.reads("test-<number> virt-launcher-test<suffix>-<suffix> 3/3 Terminating 0 <age>")


def test_names_and_documents_are_watched(shell, replica_set):
    with watching(shell, "get", "vmirs", "-w", "-o", "name") as seen:
        seen.reads("virtualmachineinstancereplicaset.kubevirt.io/testreplicaset")
        kubectl(shell, "label", "vmirs", replica_set, "seen=yes")
        seen.reads("virtualmachineinstancereplicaset.kubevirt.io/testreplicaset")
    with watching(shell, "get", "vmirs", "-w", "-o", "json", "--output-watch-events") as seen:
        seen.reads('{"type":"ADDED",..."name":"testreplicaset",...')
        kubectl(shell, "delete", "vmirs", replica_set)
        seen.reads('{"type":"DELETED",..."name":"testreplicaset",...')


@pytest.mark.since("1.26")  # which brought kubectl events
def test_events_are_watched(shell, replica_set):
    with watching(shell, "events", "--watch", "--for", f"vmirs/{replica_set}") as seen:
        seen.reads("LAST SEEN TYPE REASON OBJECT MESSAGE")
        kubectl(shell, "scale", "vmirs", replica_set, "--replicas=4")
        seen.reads("<age>... Normal SuccessfulCreate ... Created virtual machine: test<suffix>")
