"""Fixtures of the tests that boot real machines."""

import asyncio
from pathlib import Path

import pytest
from tests.demo_guest import demo_disk as build_or_find

AGENT_SECONDS = 60.0
"""A manager gives up sooner; but that a guest is slow while others boot is no fault of it."""

TESTS = Path(__file__).parents[1]
FIRST = [
    TESTS / each
    for each in (
        "e2e/hosts/test_fencing.py",
        "e2e/test_demo_guest.py",
        "e2e/test_addresses.py",
        "e2e/test_pool.py",
        "e2e/test_session.py",
        "e2e/test_health.py",
        "e2e/test_network_session.py",
        "e2e/hosts/test_machines.py",
        "e2e/test_cluster.py",
        "e2e/hosts/test_cni.py",
        "e2e/test_hotplug.py",
        "faults/test_saved_memory_kill.py",
        "e2e/hosts/test_backends.py",
        "e2e/hosts/test_wireguard.py",
        "e2e/test_storage.py",
        "e2e/test_services.py",
        "e2e/hosts/test_failures.py",
        "faults/test_network.py",
    )
]
"""The modules that take the longest, which begin first: no worker has one left at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    assert all(path.exists() for path in FIRST), "a module of FIRST has another name"
    ranks = {path: rank for rank, path in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.node.qemu.guest_agent.SECONDS", AGENT_SECONDS)


@pytest.fixture(scope="session")
def demo_disk() -> Path:
    """The demo guest's disk, raw; not to be written to."""
    return asyncio.run(build_or_find())
