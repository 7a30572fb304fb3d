"""The entries of managed fields."""

from corral.api.apply import managers
from corral.api.apply.field_sets import LEAF
from corral.api.apply.managers import ANCIENT, MAX_UPDATERS, Writer, updated


def unchanged(_version):
    return LEAF, LEAF


def test_entries_of_many_managers_are_merged_at_once(monkeypatch):
    """A client may send ten thousand; merging them one by one took over ten seconds."""
    writers = [Writer(f"m{number:03}", "Update", f"v{number % 2}") for number in range(500)]
    entries = [
        writer.entry({"f:data": {f"f:{writer.manager}": {}}}, f"t{writer.manager}")
        for writer in writers
    ]
    steps = []
    union = managers.union_of
    monkeypatch.setattr(managers, "union_of", lambda sets: steps.append(len(sets)) or union(sets))
    account = updated(entries, Writer("me", "Update", "v1"), unchanged, "now")
    assert len(account) == MAX_UPDATERS
    ancient = {each["apiVersion"]: each for each in account if each["manager"] == ANCIENT}
    assert {version: len(each["fieldsV1"]["f:data"]) for version, each in ancient.items()} == {
        "v0": 246,
        "v1": 246,
    }
    assert ancient["v1"]["time"] == "tm491"
    assert len(steps) == 2
