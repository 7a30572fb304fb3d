import asyncio
import fcntl
import json

import pytest

from corral.node.images.demo import packages
from corral.node.images.demo.errors import DemoError


def known(cache):
    """A cache of all packages, as a fetch leaves it."""
    (cache / "packages").mkdir(parents=True)
    kernels = ("linux-image-6-cloud-amd64", "linux-image-6-686")
    names = [f"{name}_1_i386.deb" for name in (*kernels, *packages.NAMES)]
    for name in names:
        (cache / "packages" / name).touch()
    (cache / "packages.json").write_text(json.dumps(names))
    return [cache / "packages" / name for name in names]


async def test_packages_of_an_earlier_build_need_neither_apt_nor_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    kept = known(tmp_path)
    assert await packages.fetch(tmp_path, print) == kept


async def test_a_package_that_is_gone_is_fetched_again_and_no_apt_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    known(tmp_path)[0].unlink()
    assert packages.fetched(tmp_path) == []
    with pytest.raises(DemoError, match="apt-get is not on this machine"):
        await packages.fetch(tmp_path, print)


def test_a_cache_of_one_kernel_does_not_do(tmp_path):
    names = [package.name for package in known(tmp_path)]
    (tmp_path / "packages.json").write_text(json.dumps(names[1:]))
    assert packages.fetched(tmp_path) == []


def test_a_cache_that_was_filled_for_fewer_packages_does_not_do(tmp_path, monkeypatch):
    known(tmp_path)
    monkeypatch.setattr(packages, "NAMES", (*packages.NAMES, "something-new"))
    assert packages.fetched(tmp_path) == []


async def test_a_second_build_waits_for_the_first(tmp_path):
    kept = known(tmp_path)
    waiting = asyncio.Event()
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = asyncio.ensure_future(packages.fetch(tmp_path, lambda _: waiting.set()))
        await asyncio.wait_for(waiting.wait(), 60)
        assert not second.done()
    assert await asyncio.wait_for(second, 60) == kept


async def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DemoError, match="cannot be written"):
        await packages.fetch(tmp_path / "file" / "cache", print)
