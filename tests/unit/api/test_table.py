from dataclasses import replace

import pytest
from lightkube.models.core_v1 import Pod

from corral.api.errors import BadRequest
from corral.api.kind import Column, Kind, Version, at
from corral.api.table import cells, check_include, printed, table

NOW = 1_700_000_000.0
KIND = Kind(
    group="example.io",
    name="Thing",
    plural="things",
    versions=(Version(name="v1"),),
    view=Pod,
    columns=(
        Column(name="Size", type="integer", cell=lambda document: at(document, "spec", "size")),
        Column(name="Age", type="date", cell=lambda document: at(document, "metadata", "created")),
        Column(name="More", cell=lambda document: "m", priority=1, description="more of it"),
    ),
)
THING = {
    "apiVersion": "example.io/v1",
    "kind": "Thing",
    "metadata": {"name": "a", "created": "2023-11-14T22:13:07Z"},
    "spec": {"size": 3},
}


def row(kind, document):
    return printed(cells(kind, document), NOW)


def test_a_table_has_the_name_first_and_ages_in_words():
    whole = table(KIND, metadata={"resourceVersion": "7"})
    assert whole["kind"] == "Table"
    assert whole["metadata"] == {"resourceVersion": "7"}
    assert [column["name"] for column in whole["columnDefinitions"]] == [
        "Name",
        "Size",
        "Age",
        "More",
    ]
    assert whole["columnDefinitions"][0]["format"] == "name"
    assert whole["columnDefinitions"][3] == {
        "name": "More",
        "type": "string",
        "format": "",
        "description": "more of it",
        "priority": 1,
    }
    assert row(KIND, THING) == ["a", 3, "13s", "m"]


def test_ages_of_native_kinds_are_strings():
    native = replace(KIND, native=True)
    types = [column["type"] for column in table(native, metadata={})["columnDefinitions"]]
    assert types == ["string", "integer", "string", "string"]
    ours = [column["type"] for column in table(KIND, metadata={})["columnDefinitions"]]
    assert ours == ["string", "integer", "date", "string"]


def test_ages_grow_although_cells_are_cached():
    kept = cells(KIND, THING)
    assert printed(kept, NOW)[2] == "13s"
    assert printed(kept, NOW + 60)[2] == "73s"


def test_valid_values_of_include_object():
    for include in ("", "None", "Metadata", "Object"):
        check_include(include)
    with pytest.raises(BadRequest, match="includeObject"):
        check_include("All")


def test_a_missing_value_is_blank():
    assert row(KIND, {"metadata": {"name": "b"}}) == ["b", None, None, "m"]
    native = Kind(
        group="",
        name="T",
        plural="ts",
        versions=KIND.versions,
        view=Pod,
        native=True,
        columns=KIND.columns,
    )
    assert row(native, {"metadata": {"name": "b"}})[2] == "<unknown>"
    assert row(KIND, {"metadata": {"name": "b", "created": "once"}})[2] == "<invalid>"
