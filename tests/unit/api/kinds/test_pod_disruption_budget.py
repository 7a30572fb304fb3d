"""PodDisruptionBudgets: what is refused of them, and how they are printed."""

import pytest

from corral.api.kinds.pod_disruption_budget import (
    POD_DISRUPTION_BUDGET,
    disruption_conditions,
    scaled,
    validate,
)
from corral.api.schema import schema_for

NOW = "2026-01-01T00:00:00Z"


def budget(**spec) -> dict:
    return {"metadata": {"name": "web", "generation": 1}, "spec": spec}


def causes(document) -> list[tuple[str, str]]:
    verdict = validate(document, None, "somebody")
    return [(cause.field, cause.message) for cause in verdict.causes]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minAvailable": 0},
        {"minAvailable": 2000},
        {"maxUnavailable": "0%"},
        {"maxUnavailable": "100%", "selector": {}},
        {"selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        {"unhealthyPodEvictionPolicy": "IfHealthyBudget"},
    ],
)
def test_valid_budgets_are_accepted(spec):
    document = budget(**spec)
    assert schema_for(POD_DISRUPTION_BUDGET).check(document) == []
    assert causes(document) == []


PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"minAvailable": 1, "maxUnavailable": 1},
            "spec",
            (
                'Invalid value: {"minAvailable":1,"maxUnavailable":1}: minAvailable and '
                "maxUnavailable cannot be both set"
            ),
        ),
        (
            {"minAvailable": -1},
            "spec.minAvailable",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"maxUnavailable": "half"},
            "spec.maxUnavailable",
            f'Invalid value: "half": {PERCENT}',
        ),
        ({"maxUnavailable": "5"}, "spec.maxUnavailable", f'Invalid value: "5": {PERCENT}'),
        ({"minAvailable": "-5%"}, "spec.minAvailable", f'Invalid value: "-5%": {PERCENT}'),
        (
            {"minAvailable": "101%"},
            "spec.minAvailable",
            'Invalid value: "101%": must not be greater than 100%',
        ),
        (
            {"minAvailable": "9" * 5000 + "%"},
            "spec.minAvailable",
            f'Invalid value: "{"9" * 200}...": must not be greater than 100%',
        ),
        (
            {"unhealthyPodEvictionPolicy": "Never"},
            "spec.unhealthyPodEvictionPolicy",
            'Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "spec.selector.matchExpressions[0].operator",
            'Invalid value: "Is": not a valid selector operator',
        ),
    ],
)
def test_invalid_budgets_are_rejected(spec, field, message):
    assert causes(budget(**spec)) == [(field, message)]


def test_new_conditions_must_be_complete():
    conditions = {"type": "DisruptionAllowed", "status": "", "reason": "Known"}
    document = {"metadata": {"name": "budget"}, "status": {"conditions": [conditions]}}
    found = validate(document, None, "").causes
    assert [(cause.field, cause.message) for cause in found] == [
        ("status.conditions[0].status", "Required value"),
        ("status.conditions[0].lastTransitionTime", "Required value"),
    ]
    assert validate(document, document, "").causes == []


class Compared(dict):
    """A condition that counts how often it is compared."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = None


def test_comparing_conditions_is_not_quadratic():
    def document(reason):
        conditions = [Compared(type=f"T{index}", reason=reason) for index in range(60)]
        return {"metadata": {"name": "budget"}, "status": {"conditions": conditions}}

    old = document("before")
    assert len(validate(document("now"), old, "").causes) == 100
    turned = {
        "status": {
            "conditions": [dict(reversed(each.items())) for each in old["status"]["conditions"]]
        }
    }
    assert validate(turned | {"metadata": {"name": "budget"}}, old, "").causes == []
    assert Compared.times < 100


def test_counts_in_the_status_are_not_negative():
    document = budget() | {"status": {"disruptionsAllowed": -1, "currentHealthy": 0}}
    assert causes(document) == [
        ("status.disruptionsAllowed", "Invalid value: -1: must be greater than or equal to 0")
    ]


@pytest.mark.parametrize(
    ("bound", "whole", "count"),
    [
        (3, 10, 3),
        ("75%", 4, 3),
        ("50%", 7, 4),
        ("1%", 10, 1),
        ("0%", 10, 0),
        ("100%", 0, 0),
    ],
)
def test_percentages_are_rounded_up(bound, whole, count):
    """As for a budget of seven pods of which half have to stay (Kubernetes' documentation)."""
    assert scaled(bound, whole) == count


def test_invalid_percentages_have_no_count():
    with pytest.raises(ValueError, match='"many" is no percentage'):
        scaled("many", 3)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({"minAvailable": 2}, ["2", "N/A"]),
        ({"maxUnavailable": "25%"}, ["N/A", "25%"]),
        ({"maxUnavailable": 0}, ["N/A", "0"]),
        ({}, ["N/A", "N/A"]),
    ],
)
def test_tables_are_kubernetes(spec, shown):
    columns = POD_DISRUPTION_BUDGET.columns
    names = ["Min Available", "Max Unavailable", "Allowed Disruptions", "Age"]
    assert [column.name for column in columns] == names
    document = budget(**spec) | {"status": {"disruptionsAllowed": 1}}
    assert [column.cell(document) for column in columns[:3]] == [*shown, 1]
    assert columns[2].cell(budget(**spec)) == 0


def test_the_condition_follows_the_allowed_disruptions():
    status = {"disruptionsAllowed": 1, "observedGeneration": 2}
    (first,) = disruption_conditions(status, NOW)
    assert first == {
        "type": "DisruptionAllowed",
        "status": "True",
        "reason": "SufficientPods",
        "message": "",
        "observedGeneration": 2,
        "lastTransitionTime": NOW,
    }
    later = "2026-01-01T00:01:00Z"
    (same,) = disruption_conditions(status | {"conditions": [first]}, later)
    assert same == first
    (turned,) = disruption_conditions({"disruptionsAllowed": 0, "conditions": [first]}, later)
    assert (turned["status"], turned["reason"]) == ("False", "InsufficientPods")
    assert turned["lastTransitionTime"] == later
    (failed,) = disruption_conditions(
        {"disruptionsAllowed": 0, "conditions": [turned]}, NOW, failure="no idea"
    )
    assert (failed["reason"], failed["message"]) == ("SyncFailed", "no idea")
    assert failed["lastTransitionTime"] == later


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {f"a{number}": "x" for number in range(1001)}},
        {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 1001},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"] * 1000}]},
    ],
)
def test_the_number_of_requirements_of_a_selector_is_limited(selector):
    most = "Too many: 1001: must have at most 1000 labels, expressions and values"
    assert causes(budget(selector=selector)) == [("spec.selector", most)]
