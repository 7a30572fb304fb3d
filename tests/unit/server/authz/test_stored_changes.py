"""Tests of the changes since the last sync of an index."""

from corral.api.object import Key
from corral.server.authz.stored_changes import StoredChanges
from corral.store import Store
from corral.store.memory import Retention
from corral.store.sqlite import Log

ROLES, BINDINGS = "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"


async def write(store, kind, name, **fields):
    document = {"apiVersion": "v1", "metadata": {"namespace": "default", "name": name}, **fields}
    await store.write(kind, Key("default", name), document)


def names(found):
    """The kinds with the names of their changed objects; None where all are to be read."""
    return {
        kind: None if changes is None else [each.record.key.name for each in changes]
        for kind, changes in found
    }


async def test_all_is_read_once_and_then_what_has_changed():
    store = Store.in_memory()
    changes = StoredChanges(store, (ROLES, BINDINGS))
    await write(store, ROLES, "a")
    assert names(changes)[ROLES] is None
    assert names(changes) == {}
    await write(store, BINDINGS, "b")
    await write(store, BINDINGS, "c")
    assert names(changes) == {BINDINGS: ["b", "c"]}
    assert names(changes) == {}
    await store.close()


async def test_all_is_read_again_after_changes_have_left_the_window():
    store = Store(Log(None), threaded=False, retention=Retention(changes=2))
    changes = StoredChanges(store, (ROLES,))
    await write(store, ROLES, "a")
    assert names(changes) == {ROLES: None}
    for number in range(10):
        await write(store, ROLES, "a", rules=number)
    assert store.compacted > 1
    assert names(changes) == {ROLES: None}
    assert names(changes) == {}
    await store.close()
