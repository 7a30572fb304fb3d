"""The store against a dict: any mix of writes, failures, restarts and forgetting."""

import asyncio

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corral.api.errors import Gone, InternalError
from corral.api.object import Key
from corral.store import Log, Store
from corral.store.memory import Retention

KIND = "things.example.com"
NAMES = st.sampled_from(["a", "b", "c"])
NAMESPACES = st.sampled_from(["", "one", "two"])


class SharedLog(Log):
    """A log in memory that stays when the store over it is closed, and fails if a test says so."""

    failing = False

    def append(self, rows, forget, compacted):
        if self.failing:
            raise InternalError("disk I/O error")
        super().append(rows, forget, compacted)
        if forget:
            self.compacted = compacted

    def close(self):
        pass


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.log = SharedLog(None)
        self.model = {}
        self.history = {0: {}}
        self.counter = 0
        self.open()

    def open(self):
        self.store = Store(self.log, threaded=False, retention=Retention(changes=6))

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def teardown(self):
        self.run(self.store.close())
        self.runner.close()
        Log.close(self.log)

    async def change(self, changes):
        pending = []
        for namespace, name, delete in changes:
            key = Key(namespace, name)
            self.counter += 1
            document = {"metadata": {"name": name}, "spec": self.counter}
            latest = self.store.latest(KIND, key)
            if delete and latest is None:
                continue
            act = self.store.delete if delete else self.store.write
            pending.append((key, None if delete else self.counter, act(KIND, key, document)))
        for key, value, done in pending:
            try:
                record = await done
            except InternalError:
                continue
            if value is None:
                del self.model[key]
            else:
                self.model[key] = value
            self.history[record.revision] = dict(self.model)

    @rule(changes=st.lists(st.tuples(NAMESPACES, NAMES, st.booleans()), min_size=1, max_size=5))
    def writes_that_share_a_commit(self, changes):
        self.run(self.change(changes))

    @rule(changes=st.lists(st.tuples(NAMESPACES, NAMES, st.booleans()), min_size=1, max_size=3))
    def writes_that_fail(self, changes):
        self.log.failing = True
        self.run(self.change(changes))
        self.log.failing = False

    @rule()
    def restart(self):
        self.run(self.store.close())
        self.open()

    def contents(self, **options):
        stretch = self.store.record_range(KIND, **options)
        found = {record.key: record.document()["spec"] for record in stretch.records}
        assert len(found) == stretch.count
        return found

    @invariant()
    def the_store_holds_what_the_model_holds(self):
        assert self.contents() == self.model
        for namespace in ("one", "two"):
            expected = {key: at for key, at in self.model.items() if key.namespace == namespace}
            assert self.contents(namespace=namespace) == expected
            assert {each.key for each in self.store.objects(KIND, namespace)} == set(expected)
        assert list(self.contents()) == sorted(self.model)

    @invariant()
    def every_kept_revision_can_be_listed_and_watched_forward_to_now(self):
        for revision, expected in self.history.items():
            if revision < self.store.compacted:
                if revision:
                    try:
                        self.store.record_range(KIND, revision=revision)
                    except Gone:
                        continue
                    raise AssertionError(revision)
                continue
            if revision:
                assert self.contents(revision=revision) == expected
                self.pages_end_where_the_next_begin(revision, sorted(expected))
            self.run(self.replay(revision, dict(expected)))

    def pages_end_where_the_next_begin(self, revision, keys):
        for place, after in enumerate(keys):
            later = keys[place + 1 :]
            assert list(self.contents(after=after, revision=revision)) == later
            below = [each for each in later if each.namespace == "two"]
            found = self.contents(namespace="two", after=after, revision=revision)
            assert list(found) == below

    async def replay(self, revision, state):
        watch = self.store.watch(KIND, revision)
        for event in await watch.next_events(0):
            known = state.get(event.record.key)
            assert (event.previous is None) == (known is None)
            if event.deleted:
                del state[event.record.key]
            else:
                state[event.record.key] = event.record.document()["spec"]
        watch.close()
        assert state == self.model


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=15)
TestStoreModel = StoreMachine.TestCase
