"""The demo guest's disk for tests that boot real machines: built once, kept between runs."""

import fcntl
from pathlib import Path

from tests.accelerator import cache_directory

from corral.node.images.demo import build_demo, demo_recipe_digest


async def demo_disk() -> Path:
    """A raw disk that nobody may write to (boot it with an overlay or `-snapshot`)."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    disk = cache / f"demo-{demo_recipe_digest()}.raw"
    with (cache / "lock").open("w") as lock:  # tests run beside each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        if disk.exists():
            return disk
        return await build_demo(disk, cache=cache / "packages", progress=print)
