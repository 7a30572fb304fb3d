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
def test_values_are_quoted(value):
    matcher = promql.equals("label", value)
    quoted = matcher.removeprefix("label=")
    assert STRING.fullmatch(quoted)
    assert json.loads(quoted) == value


@given(st.lists(st.text(min_size=1), min_size=1))
def test_patterns_match_exactly_the_values(values):
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
def test_selectors_become_matchers(selector, matchers):
    assert promql.matchers(parse_labels(selector)) == matchers


@pytest.mark.parametrize("key", ["app.kubernetes.io/name", "a-b", "1a", 'a="",b', "ä", "a" * 300])
def test_invalid_labels_are_rejected(key):
    selector = LabelSelector((Requirement(key, "=", ("x",)),))
    with pytest.raises(BadRequest, match="cannot be the label of a metric in Prometheus"):
        promql.matchers(selector)


def test_numeric_operators_are_rejected():
    with pytest.raises(BadRequest, match="labels are no numbers"):
        promql.matchers(parse_labels("a>1"))


@pytest.mark.parametrize("name", ["x", "x:y", "_1", "A" * 256])
def test_valid_metric_names(name):
    assert promql.is_metric(name)


@pytest.mark.parametrize("name", ["", "1x", "x-y", "x{", "x)", "x\n", "é", "A" * 257])
def test_invalid_metric_names(name):
    assert not promql.is_metric(name)
