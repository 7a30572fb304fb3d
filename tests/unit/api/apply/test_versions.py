"""Every kind that is served has types, and its lists with keys have these keys."""

import pytest

from corral.api.apply.versions import versions_of
from corral.api.kinds import KINDS
from corral.api.schema import structural

SERVED = [(kind, version.name) for kind in KINDS for version in kind.versions]


def lists(schema, path=""):
    """The lists with keys of a schema."""
    if "x-kubernetes-list-map-keys" in schema:
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from lists(inner, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from lists(schema[inner], path)


@pytest.mark.parametrize(
    ("kind", "version"), SERVED, ids=[f"{kind.resource}-{version}" for kind, version in SERVED]
)
def test_every_kind_has_types_and_list_keys(kind, version):
    versions = versions_of(kind)
    assert versions.form(f"{kind.group}/{version}".lstrip("/")) in ("", version)
    assert versions.typed(version).faults({"metadata": {"name": "a", "labels": {"x": "y"}}}) == []
    for path, schema in lists(structural(kind, version)):
        present = schema["items"]["properties"]
        assert set(schema["x-kubernetes-list-map-keys"]) <= present.keys(), path


def test_types_of_a_kind_are_cached():
    kind, _ = SERVED[0]
    assert versions_of(kind) is versions_of(kind)
    assert versions_of(kind).typed("") is versions_of(kind).typed("")
