"""Nothing that somebody sends can end the place in a query that it stands in."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, Requirement, parse_labels
from corral.server.metrics.custom import promql

STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"')
"""A string of JSON, which is one of PromQL too."""


@given(st.text())
def test_a_value_is_one_string_and_nothing_else(value):
    matcher = promql.equals("label", value)
    quoted = matcher.removeprefix("label=")
    assert STRING.fullmatch(quoted)
    assert json.loads(quoted) == value


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_pattern_matches_the_values_and_nothing_else(values):
    pattern = json.loads(promql.one_of("label", values).removeprefix("label=~"))
    for value in values:
        assert re.fullmatch(pattern, value)
        assert not re.fullmatch(pattern, value + "x") or value + "x" in values


@pytest.mark.parametrize(
    ("selector", "matchers"),
    [
        ("a=b", ['a="b"']),
        ("a==b", ['a="b"']),
        ("a!=b", ['a!="b"']),
        ("a in (b,c.d)", ['a=~"b|c\\\\.d"']),
        ("a notin (b)", ['a!~"b"']),
        ("a", ['a!=""']),
        ("!a", ['a=""']),
        ("a=", ['a=""']),
        ("", []),
    ],
)
def test_selectors_become_conditions_on_series(selector, matchers):
    assert promql.matchers(parse_labels(selector)) == matchers


@pytest.mark.parametrize("key", ["app.kubernetes.io/name", "a-b", "1a", 'a="",b', "ä", "a" * 300])
def test_what_cannot_be_a_label_in_prometheus_is_refused(key):
    selector = LabelSelector((Requirement(key, "=", ("x",)),))
    with pytest.raises(BadRequest, match="cannot be the label of a metric in Prometheus"):
        promql.matchers(selector)


def test_labels_of_metrics_are_no_numbers():
    with pytest.raises(BadRequest, match="labels are no numbers"):
        promql.matchers(parse_labels("a>1"))


@pytest.mark.parametrize("name", ["x", "x:y", "_1", "A" * 256])
def test_names_of_metrics(name):
    assert promql.is_metric(name)


@pytest.mark.parametrize("name", ["", "1x", "x-y", "x{", "x)", "x\n", "é", "A" * 257])
def test_what_is_no_name_of_a_metric(name):
    assert not promql.is_metric(name)
