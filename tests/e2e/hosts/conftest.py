"""Fixtures of the tests with several hosts."""

import os
from collections.abc import Iterator

import pytest
from tests.hosts import HOLLOW, Site, site


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three hosts with simulated machines: the manager's, a node, and one that has not joined."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 3) as made:
        made.up(*HOLLOW)
        made.join(made.hosts[1], *HOLLOW)
        yield made
