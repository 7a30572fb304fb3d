"""Those are cut off who wait, and as long as they do."""

import asyncio

from corral.server.registry.watch_backlog import BUFFERED_BYTES, GRACE_ITERATIONS, Backlog

ONE = 100_000


async def some_turns():
    """Until whoever still waits is counted."""
    for _ in range(GRACE_ITERATIONS):
        await asyncio.sleep(0)


class Watcher:
    """A watcher that gets a chunk, and reads it or not."""

    def __init__(self, backlog, user, chunk):
        self.was_cut = False
        self._tracked = backlog.track(user, chunk, self.abort)
        self._tracked.__enter__()

    def abort(self):
        self.was_cut = True

    def read(self):
        self._tracked.__exit__(None, None, None)


async def test_shared_bytes_are_counted_once():
    backlog, chunk = Backlog(), bytes(ONE)
    first, second = (Watcher(backlog, "a", chunk) for _ in range(2))
    other = Watcher(backlog, "b", bytes(ONE))
    assert backlog.size == 0, "none has waited yet"
    await some_turns()
    assert backlog.size == 3 * BUFFERED_BYTES + 2 * ONE
    first.read()
    assert backlog.size == 2 * BUFFERED_BYTES + 2 * ONE
    second.read()
    other.read()
    assert backlog.size == 0


async def test_the_watch_that_is_pending_longest_is_aborted():
    backlog = Backlog(3 * (BUFFERED_BYTES + ONE))
    slow, quick, late, last = (Watcher(backlog, "a", bytes(ONE)) for _ in range(4))
    await some_turns()
    assert [slow.was_cut, quick.was_cut, late.was_cut, last.was_cut] == [True, False, False, False]
    assert backlog.size == 3 * (BUFFERED_BYTES + ONE)
    slow.read()  # its connection is gone, and so is the chunk
    assert backlog.size == 3 * (BUFFERED_BYTES + ONE)
    for each in (quick, late, last):
        each.read()
    assert backlog.size == 0


async def test_no_watch_is_aborted_for_another_users():
    backlog = Backlog(4 * (BUFFERED_BYTES + ONE))
    modest = Watcher(backlog, "modest", bytes(ONE))
    greedy = [Watcher(backlog, "greedy", bytes(ONE)) for _ in range(10)]
    await some_turns()
    assert not modest.was_cut
    assert [each.was_cut for each in greedy] == [True] * 7 + [False] * 3


async def test_the_user_with_most_pending_bytes_loses_a_watch():
    backlog = Backlog(40 * BUFFERED_BYTES)
    many = [Watcher(backlog, "many", b"small") for _ in range(20)]
    large = [Watcher(backlog, "large", bytes(10 * BUFFERED_BYTES)) for _ in range(3)]
    await some_turns()
    assert not any(each.was_cut for each in many)
    assert [each.was_cut for each in large] == [True, True, False]


async def test_prompt_readers_do_not_count_as_pending():
    backlog = Backlog(0)
    for _ in range(100):
        several = [Watcher(backlog, "a", bytes(ONE)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in several:
            each.read()
        assert backlog.size == 0
        assert not any(each.was_cut for each in several)
    await some_turns()
    assert not backlog._recent
