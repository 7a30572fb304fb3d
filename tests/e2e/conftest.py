"""Fixtures of the tests that boot real machines."""

import asyncio
from pathlib import Path

import pytest
from tests.demo_guest import demo_disk as build_or_find


@pytest.fixture(scope="session")
def demo_disk() -> Path:
    """The demo guest's disk, raw; not to be written to."""
    return asyncio.run(build_or_find())
