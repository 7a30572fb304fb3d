"""Leases of disks on a shared directory: one holder alone, or several that share."""

import random
import threading

import pytest

from corral.node.storage.error import StorageError
from corral.node.storage.lease_files import Holder, Leased, LeaseFiles

DISK = "pvc-1"
A, B, C = Holder("host-a", "vmi-1"), Holder("host-b", "vmi-2"), Holder("host-c", "vmi-3")


@pytest.fixture
def leases(tmp_path):
    made = LeaseFiles(tmp_path)
    made.create(DISK)
    return made


def test_one_holder_has_a_disk_alone(leases):
    leases.acquire(DISK, A, alone=True)
    with pytest.raises(Leased) as caught:
        leases.acquire(DISK, B, alone=True)
    assert caught.value.holders == {A}
    with pytest.raises(Leased):
        leases.acquire(DISK, B, alone=False)
    assert leases.has(DISK, A, alone=True)
    assert not leases.has(DISK, B, alone=True)


def test_a_holder_that_comes_back_has_its_lease(leases):
    leases.acquire(DISK, A, alone=True)
    leases.acquire(DISK, A, alone=True)
    assert leases.holders(DISK) == {A}


def test_a_released_disk_is_free(leases):
    leases.acquire(DISK, A, alone=True)
    leases.release(DISK, A)
    leases.release(DISK, A)
    leases.acquire(DISK, B, alone=True)
    leases.release(DISK, A)
    assert leases.holders(DISK) == {B}


def test_the_lease_of_a_holder_that_has_ended_passes_to_another(leases):
    leases.acquire(DISK, A, alone=True)
    leases.acquire(DISK, B, alone=True, has_ended=lambda holder: holder == A)
    assert leases.has(DISK, B, alone=True)
    assert not leases.has(DISK, A, alone=True)
    leases.release(DISK, A)
    assert leases.has(DISK, B, alone=True)


def test_holders_share_a_disk_against_one_that_wants_it_alone(leases):
    leases.acquire(DISK, A, alone=False)
    leases.acquire(DISK, B, alone=False)
    with pytest.raises(Leased) as caught:
        leases.acquire(DISK, C, alone=True)
    assert caught.value.holders == {A, B}
    leases.release(DISK, A)
    leases.acquire(DISK, C, alone=True, has_ended=lambda holder: holder == B)
    assert leases.holders(DISK) == {C}
    assert not leases.has(DISK, B, alone=False)


def test_a_holder_may_change_from_sharing_to_alone_and_back(leases):
    leases.acquire(DISK, A, alone=False)
    leases.acquire(DISK, A, alone=True)
    assert leases.has(DISK, A, alone=True)
    leases.release(DISK, A)
    leases.acquire(DISK, B, alone=False)
    assert leases.holders(DISK) == {B}


def test_the_leases_of_a_host_are_listed(leases):
    leases.create("pvc-2")
    leases.acquire(DISK, A, alone=True)
    leases.acquire("pvc-2", A, alone=False)
    leases.acquire("pvc-2", B, alone=False)
    assert list(leases.leases_of("host-a")) == [(DISK, A), ("pvc-2", A)]


def test_a_missing_lease_is_an_error_and_never_a_free_disk(leases):
    leases.remove(DISK)
    with pytest.raises(StorageError, match="is missing"):
        leases.acquire(DISK, A, alone=True)
    assert not leases.has(DISK, A, alone=True)
    leases.release(DISK, A)


def test_a_present_lease_is_not_created_anew(leases):
    leases.acquire(DISK, A, alone=True)
    leases.create(DISK)
    assert leases.holders(DISK) == {A}


# ---------------------------------------------------------- several at a time


class Turns:
    """Lets one of several threads run at a time, until it pauses: the order is the caller's."""

    def __init__(self):
        self._main = threading.Semaphore(0)
        self._own = threading.local()

    def begin(self, work, *arguments):
        """Return a function that runs the work to its next pause, and reports whether it goes on.

        Raises what the work raises.
        """
        turn, failure, alive = threading.Semaphore(0), [], [True]

        def run():
            self._own.turn = turn
            turn.acquire()
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                failure.append(error)
            alive[0] = False
            self._main.release()

        threading.Thread(target=run, daemon=True).start()

        def go():
            turn.release()
            self._main.acquire()
            if failure:
                raise failure[0]
            return alive[0]

        return go

    def pause(self):
        self._main.release()
        self._own.turn.acquire()


class Interleaved(LeaseFiles):
    """Pauses before and after each access to the file system."""

    def __init__(self, directory, pause):
        super().__init__(directory)
        self._pause = pause

    def _read(self, handle):
        self._pause()
        found = super()._read(handle)
        self._pause()
        return found

    def _rename_to_next_generation(self, handle, lease, owner):
        self._pause()
        made = super()._rename_to_next_generation(handle, lease, owner)
        self._pause()
        return made

    def _remove_share(self, handle, holder):
        self._pause()
        super()._remove_share(handle, holder)


@pytest.mark.parametrize("block", range(4))
def test_no_interleaving_gives_a_disk_to_two(tmp_path, block, monkeypatch):
    monkeypatch.setattr("corral.files.sync_directory", lambda _path: None)
    seeds = range(block * 200, block * 200 + 200)
    granted = [play(tmp_path / str(seed), random.Random(seed)) for seed in seeds]
    assert sum(granted) > 400, "the test gives out leases at all"


def play(directory, chance):
    """Let four holders acquire, run and release one disk; return how often one had it."""
    leases = LeaseFiles(directory)
    leases.create(DISK)
    turns, running, granted, over = Turns(), {}, [], set()
    own = Interleaved(directory, turns.pause)

    def live(holder):
        for _ in range(3):
            alone = chance.random() < 0.6
            try:
                own.acquire(DISK, holder, alone=alone, has_ended=over.__contains__)
            except Leased:
                continue
            turns.pause()
            if not own.has(DISK, holder, alone=alone):
                raise AssertionError(f"{holder} has lost its lease")
            running[holder] = alone
            granted.append(holder)
            assert len(running) == 1 or not any(running.values()), running
            turns.pause()
            del running[holder]
            if chance.random() < 0.2:  # the host dies with its lease
                over.add(holder)
                return
            own.release(DISK, holder)

    alive = [turns.begin(live, Holder(f"host-{number}", "vmi")) for number in range(4)]
    while alive:
        each = chance.choice(alive)
        if not each():
            alive.remove(each)
    return len(granted)
