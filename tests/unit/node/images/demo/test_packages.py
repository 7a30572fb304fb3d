import asyncio
import fcntl
import json
import os

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
    asked = [*packages.KERNELS, *packages.NAMES]
    (cache / "packages.json").write_text(json.dumps({"asked": asked, "files": names}))
    return [cache / "packages" / name for name in names]


APT_CACHE = """\
#!/bin/sh
for last; do :; done
name=${last%:*}
echo "  Depends: linux-image-7.1-${name#linux-image-}"
"""
# As apt-get does, it names what it would fetch unless that is there, and fetches it.
APT_GET = """\
#!/bin/sh
while [ "$1" != download ]; do [ $# -gt 0 ] || exit 0; shift; done
shift
if [ "$1" = --print-uris ]; then shift; show=yes; else show=''; fi
for name; do
    file=${name%%:*}_2_i386.deb
    [ ! -e $file ] || continue
    if [ "$show" ]; then echo "'http://nowhere/$file' $file 1 SHA256:0"; else touch $file; fi
done
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Programs that answer as apt does, of a mirror on which every package has version 2."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("apt-cache", APT_CACHE), ("apt-get", APT_GET)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")


def newest(cache):
    kernels = ("linux-image-7.1-cloud-amd64", "linux-image-7.1-686")
    return [cache / "packages" / f"{name}_2_i386.deb" for name in (*kernels, *packages.NAMES)]


@pytest.mark.usefixtures("apt")
async def test_older_packages_in_the_cache_are_ignored(tmp_path):
    cache = tmp_path / "cache"
    older = known(cache)
    (cache / "packages.json").unlink()
    for package in newest(cache)[:5]:
        package.touch()  # fetched before
    for package in older:
        os.utime(package, (2**32, 2**32))  # the mirror gave it a later date
    assert await packages.fetch(cache, print) == newest(cache)
    assert packages.fetched(cache) == newest(cache)


@pytest.mark.usefixtures("apt")
async def test_packages_of_another_recipe_are_ignored(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    known(cache)
    monkeypatch.setattr(packages, "KERNELS", ("linux-image-amd64:amd64", "linux-image-686:i386"))
    assert packages.fetched(cache) == []
    fetched = await packages.fetch(cache, print)
    assert [file.name for file in fetched[:2]] == [
        "linux-image-7.1-amd64_2_i386.deb", "linux-image-7.1-686_2_i386.deb",
    ]  # fmt: skip


def test_the_list_of_an_earlier_version_does_not_count(tmp_path):
    names = [package.name for package in known(tmp_path)]
    (tmp_path / "packages.json").write_text(json.dumps(names))
    assert packages.fetched(tmp_path) == []


async def test_packages_of_an_earlier_build_need_neither_apt_nor_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    kept = known(tmp_path)
    assert await packages.fetch(tmp_path, print) == kept


async def test_a_deleted_package_is_fetched_again_by_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    known(tmp_path)[0].unlink()
    assert packages.fetched(tmp_path) == []
    with pytest.raises(DemoError, match="apt-get is not installed"):
        await packages.fetch(tmp_path, print)


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
