"""The result of QEMU's accelerator probe, found once for the data directories of all tests.

On a host whose ``/dev/kvm`` opens but hangs each guest, a probe takes two seconds of a processor.
"""

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corral.node.qemu.accelerator_probe import CACHE, find_accelerator
from corral.node.state.machine_record import MACHINES


def cache_directory() -> Path:
    """$CORRAL_TEST_CACHE, or ~/.cache/corral."""
    return Path(os.environ.get("CORRAL_TEST_CACHE", "~/.cache/corral")).expanduser()


@functools.cache
def finding() -> bytes:
    """Return the content of the file in which a node keeps the result.

    A node whose QEMU, boot or rights are others probes all the same.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)

    def probe() -> None:
        asyncio.run(find_accelerator(directory, "qemu-system-x86_64"))

    with ThreadPoolExecutor(1) as outside_of_any_loop:
        outside_of_any_loop.submit(probe).result()
    return (directory / CACHE).read_bytes()


def give_to(data_directory: Path, *nodes: str) -> None:
    """Let nodes start with the result, if they have none yet."""
    for node in nodes:
        machines = data_directory / "nodes" / node / MACHINES
        machines.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (machines / CACHE).exists():
            (machines / CACHE).write_bytes(finding())
