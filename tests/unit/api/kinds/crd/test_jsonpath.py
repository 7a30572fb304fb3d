"""JSON paths of printer columns, as in client-go."""

import pytest

from corral.api.kinds.crd.jsonpath import MOST_VALUES, PathError, compile_path, simple_path
from corral.api.kinds.crd.printer_columns import columns_of

HERD = {
    "metadata": {"name": "cows", "annotations": {"farm.example.com/vet": "Ann"}},
    "spec": {
        "size": 3,
        "parts": [{"name": "a", "port": 1, "on": True}, {"name": "b", "port": 20}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Sick"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        ("$.spec.size", [3]),
        (".spec.nothing.below", []),
        (".spec.parts[0].name", ["a"]),
        (".spec.parts[-1].name", ["b"]),
        (".spec.parts[7].name", []),
        (".spec.parts[*].name", ["a", "b"]),
        (".spec.parts[0:1].name", ["a"]),
        (".spec.parts[0,1].port", [1, 20]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.status)].type", ["Ready"]),
        (".spec.parts[?(@.port>2)].name", ["b"]),
        (".spec.parts[?(@.on==true)].name", ["a"]),
        (r".metadata.annotations.farm\.example\.com/vet", ["Ann"]),
        (".metadata.annotations['farm.example.com/vet']", ["Ann"]),
        ('.spec["size"]', [3]),
        ("..port", [1, 20]),
        (".spec.size.more", []),
    ],
)
def test_paths_have_values(path, found):
    assert compile_path(path).find(HERD) == found


@pytest.mark.parametrize(
    "path", [".a[", ".a[x]", ".a[?(@.b=~1)]", ".a[0:9:0]", ".a b", ".a{", "." * 5000, ".a[]"]
)
def test_invalid_paths_are_rejected(path):
    with pytest.raises(PathError):
        compile_path(path)


def test_the_values_of_many_wildcards_are_limited():
    deep: object = 1
    for _ in range(12):
        deep = [deep] * 3
    assert len(compile_path("[*]" * 11).find(deep)) == MOST_VALUES


def test_simple_paths_have_only_fields():
    assert simple_path(".spec.size") == ("spec", "size")
    for path in ("spec.size", ".spec[0]", ".spec..size", ".spec.*"):
        with pytest.raises(PathError):
            simple_path(path)


@pytest.mark.parametrize(
    ("kind", "path", "shown"),
    [
        ("string", ".spec.parts[*].name", "a b"),
        ("string", ".spec.size", "3"),
        ("string", ".spec.parts[0]", '{"name":"a","port":1,"on":true}'),
        ("string", ".spec.none", None),
        ("integer", ".spec.size", 3),
        ("integer", ".metadata.name", None),
        ("boolean", ".spec.parts[0].on", True),
        ("number", ".spec.size", 3),
        ("date", ".spec.size", None),
    ],
)
def test_cells_have_the_type_of_their_column(kind, path, shown):
    expected = {"name": "X", "type": kind, "jsonPath": path}
    (column,) = columns_of({"additionalPrinterColumns": [expected]})
    assert column.cell(HERD) == shown
