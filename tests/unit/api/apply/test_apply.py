"""Server-side apply by several managers: the object and its managed fields."""

import pytest
from tests.unit.api.apply.test_types import SCHEMA, leaf

from corral.api.apply.apply import ConflictingManagers, apply
from corral.api.apply.managers import Writer, updated
from corral.api.apply.versions import Versions
from corral.api.kind import Kind, Version
from corral.api.object import Object


class Thing(Object):
    """A thing."""


def rename(old, new):
    """Return the conversion between versions in which a field has different names."""

    def turn(document):
        spec = document.get("spec") or {}
        if old in spec:
            spec[new] = spec.pop(old)

    return turn


RENAMED = SCHEMA | {
    "properties": SCHEMA["properties"]
    | {
        "spec": SCHEMA["properties"]["spec"]
        | {
            "properties": {
                {"text": "words"}.get(name, name): schema
                for name, schema in SCHEMA["properties"]["spec"]["properties"].items()
            }
        }
    }
}
VERSIONS = Versions(
    Kind(
        group="lab",
        name="Thing",
        plural="things",
        view=Thing,
        versions=(
            Version(name="v1"),
            Version(name="v1beta1"),
            Version(name="v2", read=rename("words", "text"), write=rename("text", "words")),
        ),
        schemas={"v1": SCHEMA, "v1beta1": SCHEMA, "v2": RENAMED},
    )
)


class Live:
    """An object and its managed fields; ``now`` is the number of writes."""

    def __init__(self):
        self.document = {}
        self.account = []
        self.writes = 0

    def apply(self, manager, *, force=False, version="v1", **spec):
        self.writes += 1
        form = VERSIONS.form(f"lab/{version}")
        live = VERSIONS.from_stored(self.document, form)
        document, self.account = apply(
            VERSIONS,
            live,
            {"metadata": {"name": "one"}, "spec": spec},
            self.account,
            Writer(manager, "Apply", f"lab/{version}"),
            force=force,
            now=f"{self.writes:02}",
        )
        self.document = VERSIONS.to_stored(document, form)
        return self

    def update(self, manager, *, version="v1", **spec):
        self.writes += 1
        new = {"metadata": {"name": "one"}, "spec": spec}
        old = self.document or None
        writer = Writer(manager, "Update", f"lab/{version}")
        now = f"{self.writes:02}"
        self.account = updated(self.account, writer, VERSIONS.comparer(old, new), now)
        self.document = new
        return self

    @property
    def spec(self):
        return self.document.get("spec")

    @property
    def managers(self):
        return {
            entry["manager"] + ("" if entry["operation"] == "Apply" else "!"): entry[
                "fieldsV1"
            ].get("f:spec", {})
            for entry in self.account
        }


@pytest.fixture
def live():
    return Live()


def test_several_may_manage_the_same_value(live):
    live.apply("one", text="a").apply("two", text="a")
    assert live.managers == {"one": leaf("text"), "two": leaf("text")}


def test_a_field_stays_until_its_last_manager_stops_applying_it(live):
    live.apply("one", text="a", either=1).apply("two", text="a")
    live.apply("one", either=1)
    assert live.spec == {"text": "a", "either": 1}
    live.apply("two", either=1)
    assert live.spec == {"either": 1}


def test_a_manager_that_applies_nothing_has_no_entry(live):
    live.apply("one", text="a").apply("two", either=1)
    live.apply("one")
    assert live.spec == {"either": 1}
    assert list(live.managers) == ["two", "one"]
    assert live.managers["one"] == {}


def test_fields_of_other_managers_stay(live):
    live.apply("one", text="a", either=1)
    live.update("two", text="b", either=1)
    live.apply("one", either=1)
    assert live.spec == {"text": "b", "either": 1}
    assert live.managers == {"one": leaf("either"), "two!": leaf("text")}


def test_unmanaged_fields_stay(live):
    live.update("two", text="a", either=1)
    live.account = []
    live.apply("one", text="a").apply("one", text="a")
    assert live.spec == {"text": "a", "either": 1}


def test_a_map_with_fields_of_others_stays(live):
    live.apply("one", struct={"a": "1"})
    live.update("two", struct={"a": "1", "b": "1"})
    live.apply("one", text="x")
    assert live.spec == {"struct": {"b": "1"}, "text": "x"}


def test_an_item_that_is_not_applied_any_more_is_removed_with_others_fields(live):
    live.apply("one", byName=[{"name": "n"}, {"name": "m"}])
    live.update("two", byName=[{"name": "n", "value": "x"}, {"name": "m"}])
    live.apply("one", byName=[{"name": "m"}])
    assert live.spec == {"byName": [{"name": "m"}]}
    assert live.managers == {"one": {"f:byName": {'k:{"name":"m"}': {".": {}, "f:name": {}}}}}


def test_values_of_a_set_have_managers_each(live):
    live.apply("one", set=["a", "b"]).apply("two", set=["b", "c"])
    assert live.spec == {"set": ["a", "b", "c"]}
    live.apply("one", set=["a"])
    assert live.spec == {"set": ["a", "b", "c"]}
    live.apply("two", set=["c"])
    assert live.spec == {"set": ["a", "c"]}


def test_an_empty_applied_object_keeps_unmanaged_fields(live):
    """Defaults fill it, and have no manager."""
    live.apply("one", struct={}, any={"x": {}}, text="a")
    live.document["spec"]["struct"]["a"] = "default"
    live.document["spec"]["any"]["x"]["y"] = 1
    filled = {"struct": {"a": "default"}, "any": {"x": {"y": 1}}, "text": "a"}
    live.apply("one", struct={}, any={"x": {}}, text="a")
    assert live.spec == filled
    live.apply("one", struct={}, any={"x": {}})
    assert live.spec == {"struct": {"a": "default"}, "any": {"x": {"y": 1}}}


def test_an_emptied_object_stays(live):
    live.apply("one", struct={"a": "1"}, byName=[{"name": "n"}])
    live.apply("one", struct={}, byName=[])
    assert live.spec == {"struct": {}, "byName": []}


def test_an_atomic_list_is_one_field(live):
    live.apply("one", list=[{"name": "n"}])
    with pytest.raises(ConflictingManagers, match=r'conflict with "one": \.spec\.list$'):
        live.apply("two", list=[{"name": "n"}, {"name": "m"}])
    live.apply("two", list=[{"name": "m"}], force=True)
    assert live.spec == {"list": [{"name": "m"}]}
    assert live.managers == {"two": leaf("list")}


def test_removing_fields_of_other_managers_needs_no_force(live):
    live.apply("one", struct={"a": "1"})
    live.update("two")
    assert live.managers == {}


def test_a_nested_conflict_has_its_path(live):
    live.apply("one", ports=[{"port": 80, "name": "a"}])
    with pytest.raises(
        ConflictingManagers, match=r'\.spec\.ports\[port=80,protocol="TCP"\]\.name$'
    ):
        live.apply("two", ports=[{"port": 80, "name": "b"}])


def test_update_and_apply_of_a_manager_are_two_entries(live):
    live.update("one", text="a").apply("one", text="a")
    assert live.managers == {"one!": leaf("text") | {".": {}}, "one": leaf("text")}
    with pytest.raises(ConflictingManagers, match='conflict with "one" using lab/v1'):
        live.apply("one", text="b")


def test_the_time_is_that_of_the_last_change(live):
    live.apply("one", text="a").apply("one", text="a")
    assert [entry["time"] for entry in live.account] == ["01"]
    live.apply("one", text="b")
    assert [entry["time"] for entry in live.account] == ["03"]


def test_applying_the_same_values_changes_no_time(live):
    live.apply("one", text="a").apply("two", text="a")
    assert [entry.get("time") for entry in live.account] == [None, "01"]


def test_the_entry_of_an_apply_follows_its_version(live):
    live.apply("one", text="a").apply("one", version="v1beta1", text="a")
    assert [entry["apiVersion"] for entry in live.account] == ["lab/v1beta1"]


def test_updates_in_two_versions_are_two_entries(live):
    live.update("one", text="a").update("one", version="v1beta1", text="b")
    assert [entry["apiVersion"] for entry in live.account] == ["lab/v1", "lab/v1beta1"]


def test_fields_have_the_names_of_the_version_that_they_were_applied_in(live):
    live.apply("one", text="a", either=1)
    with pytest.raises(ConflictingManagers, match=r'conflict with "one": \.spec\.text$'):
        live.apply("two", version="v2", words="b")
    live.apply("one", version="v2", words="b", either=1)
    assert live.spec == {"text": "b", "either": 1}
    assert live.managers == {"one": leaf("words", "either")}
    live.apply("one", version="v2", either=1)
    assert live.spec == {"either": 1}


def test_a_field_not_applied_any_more_in_another_version_is_removed(live):
    live.apply("one", text="a", either=1)
    live.apply("one", version="v2", either=1)
    assert live.spec == {"either": 1}


def test_entries_of_removed_versions_are_dropped(live):
    live.apply("one", text="a")
    live.account[0]["apiVersion"] = "lab/v0"
    live.apply("two", text="b")
    assert live.managers == {"two": leaf("text")}
    live.account[0]["apiVersion"] = "lab/v0"
    live.update("three", text="c")
    assert live.managers == {"three!": leaf("text")}
