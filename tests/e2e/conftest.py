"""Fixtures of the tests that boot real machines."""

import asyncio
from pathlib import Path

import pytest
from tests.demo_guest import demo_disk as build_or_find

AGENT_SECONDS = 60.0
"""A manager gives up sooner; but that a guest is slow while others boot is no fault of it."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.node.qemu.guest_agent.SECONDS", AGENT_SECONDS)


@pytest.fixture(scope="session")
def demo_disk() -> Path:
    """The demo guest's disk, raw; not to be written to."""
    return asyncio.run(build_or_find())
