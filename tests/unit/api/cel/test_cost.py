"""Cost estimates of CEL expressions."""

import pytest

from corral.api.cel import CelError, compile_expression, cost
from corral.api.cel.calls import call_cost
from corral.api.cel.cost import MAX_COST, Size, size_of
from corral.api.cel.functions import FUNCTIONS

CALL = 20_000


def work(rule, value):
    program = compile_expression(rule, {"self": "dyn"})
    return program.estimated_cost(size_of({"self": value}))


@pytest.mark.parametrize("name", sorted({each.name for each in FUNCTIONS} | {"find", "findAll"}))
def test_a_python_function_costs_a_call_and_its_conversions(name):
    takes = max((len(each.parameters) for each in FUNCTIONS if each.name == name), default=2)
    units, made = call_cost(name, [Size(1, 2, 2, 300)] * takes)
    assert units >= CALL + made.conversion


@pytest.mark.parametrize(
    "rule",
    [
        "self.items.all(x, x <= self.items.max())",
        "self.items.all(x, self.items.slice(0, self.items.size()).size() > 0)",
        "self.items.all(x, self.items.sum() >= x || self.items.min() < x)",
        "self.items.all(x, self.items.indexOf(x) >= 0)",
        "self.items.all(x, self.items.sort()[0] <= x)",
        "self.items.all(x, self.items.reverse()[0] >= x)",
        "self.items.all(x, [self.items].flatten().size() > x)",
        "self.items.all(x, lists.range(x).size() == x)",
        "self.items.transformMap(i, x, x).size() > 0",
    ],
)
def test_copying_a_list_in_each_iteration_is_too_expensive(rule):
    much = {"items": list(range(2000))}
    assert work(rule, much) > MAX_COST
    with pytest.raises(CelError, match="cost limit exceeded"):
        compile_expression(rule, {"self": "dyn"}).run({"self": much})


def test_the_cost_of_a_list_includes_its_items():
    nested = {"rows": [[1] * 300 for _ in range(300)]}
    assert work("self.rows.all(x, self.rows.indexOf(x) >= 0)", nested) > 300 * 90_000 * 300
    assert work("self.rows.all(x, self.rows == self.rows)", nested) > 300 * 90_000 * 10


def test_calls_without_data_have_a_cost():
    rule = "self.items.all(x, semver('1.0.0').isLessThan(semver('1.0.1')))"
    assert work(rule, {"items": list(range(1000))}) > 1000 * 3 * CALL


def test_access_checks_are_limited_to_a_hundred():
    """A check may take a millisecond for a user with thousands of rules."""
    rule = "self.items.all(x, authorizer.path(x).check('get').allowed())"
    program = compile_expression(rule, {"self": "dyn", "authorizer": "map"})
    for many, is_much in ((100, False), (200, True)):
        size = size_of({"self": {"items": ["/a"] * many}})
        assert (program.estimated_cost(size) > MAX_COST) is is_much
    reasons = compile_expression(
        rule.replace("allowed()", "reason() != ''"), {"self": "dyn", "authorizer": "map"}
    )
    assert reasons.estimated_cost(size_of({"self": {"items": ["/a"] * 20}})) > MAX_COST


@pytest.mark.parametrize(
    "rule",
    [
        "self.items.max() == 1999 && self.items.slice(0, 2).size() == 2",
        "self.items.all(x, isQuantity(string(x)))",
        "self.names.all(n, isIP(n) || n.indexOf('a') >= 0)",
        "self.items.all(x, x == self.least || self.least in [0])",
    ],
)
def test_a_single_pass_over_items_is_cheap(rule):
    much = {"items": list(range(2000)), "names": ["a.b"] * 2000, "least": 0}
    assert compile_expression(rule, {"self": "dyn"}).run({"self": much}) is True


def nested(loops, innermost="true"):
    """Loops in loops over the items of what is given."""
    for number in reversed(range(loops)):
        innermost = f"self.items.all(v{number}, {innermost})"
    return innermost


def test_too_many_nested_loops_are_rejected():
    """Each more than doubles the time of an estimate: thirty would never end."""
    for loops in (9, 30):
        with pytest.raises(CelError, match="too many nested loops"):
            compile_expression(nested(loops), {"self": "dyn"})
    long = " && ".join(["v0 > 0"] * 500)
    with pytest.raises(CelError, match="too many nested loops"):
        compile_expression(nested(3, long), {"self": "dyn"})
    for short in (nested(7), nested(2, long)):
        assert compile_expression(short, {"self": "dyn"}).run({"self": {"items": [1]}})


def test_bindings_do_not_count_as_nested_loops():
    rule = "true"
    for number in reversed(range(25)):
        rule = f"cel.bind(v{number}, self.items, {rule})"
    assert compile_expression(rule, {"self": "dyn"}).run({"self": {"items": [1]}})


def test_expensive_estimates_are_cached_by_approximate_size(monkeypatch):
    estimated = []
    exactly = cost.estimate
    monkeypatch.setattr(cost, "estimate", lambda *of: estimated.append(of[1]) or exactly(*of))
    compiled = compile_expression(nested(7), {"self": "dyn"})
    for count in range(40, 60):
        compiled.estimated_cost(size_of({"self": {"items": list(range(count))}}))
    assert len(estimated) < 5


@pytest.mark.parametrize(
    "rule", [nested(3), nested(2, "cel.bind(a, self.least, a < v1)"), "[1, 2]"]
)
def test_an_estimate_visits_as_many_nodes_as_predicted(rule, monkeypatch):
    visited = []
    size = cost._Estimator.size
    monkeypatch.setattr(
        cost._Estimator, "size", lambda *arguments: visited.append(1) or size(*arguments)
    )
    compiled = compile_expression(rule, {"self": "dyn"})
    cost.estimate(compiled.tree, Size(10, 10, 10, 1000))
    assert len(visited) == cost.visits(compiled.tree)
