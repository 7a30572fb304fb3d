"""Documents that match the schema are defaulted, validated and printed, for every stored kind."""

import copy
import random
from collections.abc import Mapping
from typing import Any

import pytest

from corral.api.kinds import KINDS
from corral.api.kinds.networking.service import SERVICE
from corral.api.metadata import check_metadata
from corral.api.schema import schema_for, structural

IDENTITY = {"name": "x", "uid": "0", "creationTimestamp": "2026-01-31T12:00:00Z"}
USER = "kubernetes-admin"
# What is stored of a Service has got addresses, which no rule gives.
KEPT = [kind for kind in KINDS if kind.is_kept]
ROUNDS = 150
DEEPEST = 9
WORDS = (
    "", "a", "b", "-", "A", "../x", "ü", "YQ==", "64M", "a.b/c", "0.0.0.0/0", "10.0.0.1", "fe80::1",
    "In", "Exists", "NotIn", "TCP", "RollingUpdate", "Recreate", "25%", "150%", "Always", "Never",
    "* * * * *", "a" * 300, "ReadWriteOnce", "Filesystem", "kubernetes.io/x", "Indexed", "\n",
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 80, 65536, 2**31 - 1)
QUANTITIES = ("0", "-1", "64M", "1e30", "1E3", "100m", "9" * 40, 5)


@pytest.mark.parametrize("kind", KEPT, ids=repr)
def test_any_valid_document_can_be_validated(kind):
    dice = random.Random(kind.name)
    old, fitting = None, 0
    for _ in range(ROUNDS):
        document = fit(kind, dice)
        if document is None:
            continue
        fitting += 1
        if old is None:
            kind.default_create(document)
        else:
            kind.keep(document, old, USER)
        accepted = is_valid(kind, document, old)
        old = document if accepted and kind is not SERVICE else None
    assert fitting > ROUNDS / 20


def fit(kind: Any, dice: random.Random) -> Any:
    """A document that the schema has nothing against, as the server would hand it on; or None."""
    document = value(structural(kind), dice, 0, "")
    metadata = document.get("metadata") or {}
    document["metadata"] = {k: v for k, v in metadata.items() if k != "managedFields"} | IDENTITY
    document |= {"apiVersion": kind.api_version, "kind": kind.name}
    schema = schema_for(kind)
    schema.prune(document)
    return None if schema.check(document) else document


def is_valid(kind: Any, document: Any, old: Any) -> bool:
    """Report whether the document would be stored."""
    kind.default(document)
    completed = copy.deepcopy(document)
    kind.default(document)
    assert document == completed, "defaults are given once"
    check_metadata(kind, document)
    verdict = kind.validate(document, old, USER)
    assert document == completed, "who judges changes nothing"
    assert verdict.causes or schema_for(kind).check(document) == []
    for column in kind.columns:
        column.cell(document)
    for read in kind.selectable.values():
        assert isinstance(read(document), str)
    return not verdict.causes


def value(schema: Mapping[str, Any], dice: random.Random, depth: int, name: str) -> Any:
    """Return a value for a schema, which mostly fits."""
    if "enum" in schema:
        return dice.choice([*schema["enum"]])
    if schema.get("x-kubernetes-int-or-string"):
        return dice.choice(QUANTITIES if "pattern" in schema else (*NUMBERS, *WORDS))
    match schema.get("type"):
        case "integer" | "number":
            return dice.choice(NUMBERS)
        case "boolean":
            return dice.random() < 0.5
        case "string":
            if schema.get("format") == "date-time":
                return IDENTITY["creationTimestamp"]
            return dice.choice(WORDS)
        case "array":
            count = dice.choice((0, 1, 2)) if depth < DEEPEST else 0
            return [value(schema["items"], dice, depth + 1, name) for _ in range(count)]
        case "object":
            return fields(schema, dice, depth)
    return dice.choice((1, "a", {}, [], {"a": None}))


def fields(schema: Mapping[str, Any], dice: random.Random, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if inner := schema.get("additionalProperties"):
        keys = dice.sample(WORDS, 1 + dice.randrange(2)) if depth < DEEPEST else ()
        return {key: value(inner, dice, depth + 1, key) for key in keys}
    names = set(schema.get("required", ()))
    likely = 0.6 if depth < 2 else 0.25
    names |= {name for name in properties if depth < DEEPEST and dice.random() < likely}
    return {name: value(properties[name], dice, depth + 1, name) for name in sorted(names)}
