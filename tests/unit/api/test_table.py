import pytest
from lightkube.models.core_v1 import Pod

from corral.api.errors import BadRequest
from corral.api.kind import Column, Kind, Version, at
from corral.api.table import partial_list, table

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


def rows(kind, *documents, **options):
    return table(kind, documents, metadata={"resourceVersion": "7"}, now=NOW, **options)["rows"]


def test_a_table_has_the_name_first_and_ages_in_words():
    whole = table(KIND, [THING], metadata={"resourceVersion": "7"}, now=NOW)
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
    assert whole["rows"][0]["cells"] == ["a", 3, "13s", "m"]


def test_what_is_beside_the_cells_is_the_clients_choice():
    assert rows(KIND, THING)[0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": THING["metadata"],
    }
    assert rows(KIND, THING, include="Object")[0]["object"] == THING
    assert rows(KIND, THING, include="None")[0]["object"] is None
    with pytest.raises(BadRequest, match="includeObject"):
        rows(KIND, THING, include="All")


def test_what_is_missing_is_blank():
    assert rows(KIND, {"metadata": {"name": "b"}})[0]["cells"] == ["b", None, None, "m"]
    native = Kind(
        group="",
        name="T",
        plural="ts",
        versions=KIND.versions,
        view=Pod,
        native=True,
        columns=KIND.columns,
    )
    assert rows(native, {"metadata": {"name": "b"}})[0]["cells"][2] == "<unknown>"
    strange = {"metadata": {"name": "b", "created": "once"}}
    assert rows(KIND, strange)[0]["cells"][2] == "<invalid>"


def test_empty_lists():
    assert rows(KIND) == []
    assert partial_list([], metadata={})["items"] is None
    assert partial_list([THING], metadata={})["items"][0]["metadata"]["name"] == "a"
