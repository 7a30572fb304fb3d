"""The leases of machines: which drives need one, and until when."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.node.hypervisor import Drive, StartError
from corral.node.machine.disk_leases import LEASED, MachineLeases
from corral.node.storage import InUse


class Leases:
    """The leases of a host: ``held`` by handle, with its holder and whether alone."""

    def __init__(self):
        self.held = {}
        self.left = set()

    async def acquire(self, handle, uid, *, alone, moves=False):
        if moves:
            self.held.pop(handle, None)
        if handle in self.held and self.held[handle][0] != uid:
            raise InUse(f"volume {handle} is leased by VMI {self.held[handle][0]}")
        self.held[handle] = (uid, alone)

    async def has(self, handle, uid, *, alone):
        return self.held.get(handle) == (uid, alone)

    def leave(self, handle, uid):
        self.left.add((handle, uid))

    async def release(self, handle, uid):
        if handle in self.held and self.held[handle][0] == uid:
            del self.held[handle]


@pytest.fixture
def files():
    return Leases()


@pytest.fixture
def leases(files):
    return MachineLeases(SimpleNamespace(leases=files, running={"old": {"kept"}}))


def drive(handle, *, shares=False, volume=""):
    return Drive(volume=volume or f"v-{handle}", path=Path("/d"), lease=handle, shares=shares)


async def test_drives_of_a_shared_directory_are_leased_until_the_machine_ends(leases, files):
    await leases.acquire("one", [drive("a"), drive("b", shares=True), drive("")])
    assert files.held == {"a": ("one", True), "b": ("one", False)}
    await leases.confirm("one")
    await leases.release("one")
    assert files.held == {}


async def test_a_disk_of_two_drives_is_had_alone_if_one_writes_it(leases, files):
    await leases.acquire("one", [drive("a", shares=True), drive("a"), drive("a", shares=True)])
    assert files.held == {"a": ("one", True)}


async def test_a_leased_disk_names_its_volume_and_its_holder(leases):
    await leases.acquire("one", [drive("a")])
    with pytest.raises(StartError) as caught:
        await leases.acquire("two", [drive("a", volume="data")])
    assert caught.value.reason == LEASED
    assert caught.value.busy == "data"
    assert str(caught.value) == (
        'the disk of volume "data" cannot be had: volume a is leased by VMI one'
    )


async def test_a_machine_whose_lease_has_passed_on_does_not_start(leases, files):
    await leases.acquire("one", [drive("a")])
    files.held["a"] = ("two", True)
    with pytest.raises(StartError, match="has passed to another machine"):
        await leases.confirm("one")


async def test_the_leases_of_an_adopted_machine_are_released_with_it(leases, files):
    files.held["kept"] = ("old", True)
    await leases.release("old")
    assert files.held == {}


async def test_an_unplugged_disk_is_released_while_the_machine_runs(leases, files):
    await leases.acquire("one", [drive("a")])
    await leases.acquire("one", [drive("b", volume="plug")], plugged=True)
    await leases.release_unplugged("one", {"plug"})
    assert set(files.held) == {"a", "b"}
    await leases.release_unplugged("one", set())
    assert set(files.held) == {"a"}


async def test_without_a_shared_directory_no_drive_needs_a_lease():
    leases = MachineLeases()
    await leases.acquire("one", [drive("")])
    await leases.confirm("one")
    await leases.release("one")


async def test_the_sides_of_a_migration_have_the_same_lease(files):
    source, target = (MachineLeases(SimpleNamespace(leases=files, running={})) for _ in range(2))
    await source.acquire("one", [drive("a")])
    await target.acquire("one", [drive("a")])
    source.forget("one")
    assert files.held == {"a": ("one", True)}
    await target.release("one")
    assert files.held == {}


async def test_the_target_of_a_migration_takes_the_leases_over(leases, files):
    files.held = {"a": ("the source", True)}
    await leases.take_over("one", [drive("a"), drive("")])
    assert files.held == {"a": ("one", True)}
    await leases.release("one")
    assert files.held == {}


async def prepared():
    return {"v-a": drive("a"), "": drive("")}


async def unprepared():
    raise AssertionError("the drives are known")


async def test_the_source_of_a_migration_takes_its_leases_back(leases, files):
    """A target that has not run the guest has released them."""
    await leases.acquire("one", [drive("a"), drive("b", shares=True)])
    files.held = {}
    await leases.take_back("one", unprepared)
    assert files.held == {"a": ("one", True), "b": ("one", False)}
    await leases.release("one")
    assert files.held == {}


async def test_a_manager_that_was_restarted_takes_the_leases_of_the_drives_back(leases, files):
    await leases.take_back("one", prepared)
    assert files.held == {"a": ("one", True)}
    await leases.release("one")
    assert files.held == {}


async def test_leases_that_another_machine_has_are_not_taken_back(leases, files, monkeypatch):
    await leases.acquire("one", [drive("a", volume="data")])

    async def refuse(_handle, _uid, *, alone, moves):
        assert (alone, moves) == (True, True)
        raise InUse("volume a is leased by VMI two")

    monkeypatch.setattr(files, "acquire", refuse)
    with pytest.raises(StartError) as caught:
        await leases.take_back("one", unprepared)
    assert caught.value.busy == "data"


async def test_without_a_shared_directory_nothing_is_taken_back():
    await MachineLeases().take_back("one", unprepared)


async def test_a_target_without_the_guest_leaves_its_leases_and_releases_none(leases, files):
    await leases.take_over("old", [drive("a")])
    leases.leave("old")
    assert files.left == {("a", "old"), ("kept", "old")}
    await leases.release("old")
    assert files.held == {"a": ("old", True)}
    leases.leave("unheard-of")
    MachineLeases().leave("old")
