"""Type checking of a policy's expressions: its limits and its warnings."""

import pytest

from corral.api.kinds import KINDS
from corral.api.kinds.admissionregistration import type_checking
from corral.api.kinds.admissionregistration.type_checking import (
    MOST_TYPES,
    kinds_to_check,
    warnings,
)


class Counted(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self):
        Counted.looked_up += 1
        return super().__hash__()


def policy(groups, versions, resources, validations=()):
    rule = {"apiGroups": [*groups], "apiVersions": [*versions], "resources": [*resources]}
    return {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": each} for each in validations],
    }


def test_missing_fields_are_looked_up_once_per_name():
    names = [[Counted(f"{part}{index}") for index in range(60)] for part in ("g", "v", "r")]
    assert kinds_to_check(policy(*names), KINDS) == []
    assert 180 <= Counted.looked_up < 1000


def test_the_first_kinds_by_name_are_checked():
    plurals = sorted(kind.plural for kind in KINDS if kind.group == "")
    assert len(plurals) > MOST_TYPES
    found = kinds_to_check(policy([""], ["v1"], plurals), KINDS)
    kinds = [KINDS.find("", "v1", plural).name for plural in plurals[:MOST_TYPES]]
    assert [each.name for each in found] == [f"/v1, Kind={name}" for name in sorted(kinds)]


@pytest.mark.parametrize("part", range(3))
def test_wildcards_match_no_kind(part):
    parts = [[""], ["v1"], ["pods"]]
    assert len(kinds_to_check(policy(*parts), KINDS)) == 1
    parts[part].append("*")
    assert kinds_to_check(policy(*parts), KINDS) == []


def test_warnings_are_truncated(monkeypatch):
    spec = policy([""], ["v1"], ["pods"], ["object.dada == 1"] * 20)
    types = kinds_to_check(spec, KINDS)
    whole = [*warnings(spec, types)]
    assert [len(some) for some in whole] == [1] * 20  # in turns, a validation at a time
    size = sum(len(each["fieldRef"]) + len(each["warning"]) for (each,) in whole[:5])
    monkeypatch.setattr(type_checking, "MOST_CHARACTERS", size)
    assert [*warnings(spec, types)] == whole[:5]
    long = policy([""], ["v1"], ["pods"], [f"object.dada == '{'x' * 5000}'"])
    ((expected,),) = warnings(long, types)
    assert len(expected["warning"]) < 1200
