"""Ports of the host are forwarded, and nothing else of the host changes."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from bench.cluster import free_port

from corral.node.network.ingress import HostPort, PortForwarder
from corral.node.network.namespaces import Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LOOPBACK = ip_address("127.0.0.1")


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A file system of its own for the block."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts, and has the sandbox")
async def test_shared_mounts_of_the_host_stay(tmp_path):
    with (
        mounted(tmp_path / "shared", "--make-shared") as shared,
        mounted(shared / "namespace") as below,
        Namespace.create() as namespace,
    ):
        forwarder = PortForwarder(tmp_path / "ports", namespace, on_change=lambda: None)
        try:
            assert await forwarder.set({HostPort("tcp", LOOPBACK, free_port()): 80}) == {}
            assert below.is_mount()
        finally:
            await forwarder.set({})
