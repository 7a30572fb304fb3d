"""Pools whose selector admission would have refused: nothing is done for them."""

import msgspec
import pytest
from lightkube.models.meta_v1 import LabelSelector
from tests.unit.controllers.pool.make import pool

from corral.controllers.pool.pool_controller import selector_of
from corral.reconcile.controller import TerminalError


def test_a_selector_that_matches_the_template_is_valid():
    assert str(selector_of(pool())) == "pool=web"


@pytest.mark.parametrize(
    ("selector", "labels", "why"),
    [
        ({"matchLabels": {"pool": "other"}}, {"pool": "web"}, "does not match"),
        ({"matchLabels": {"pool": "web"}}, {}, "does not match"),
        ({}, {"pool": "web"}, "is empty"),
        ({"matchExpressions": [{"key": "a", "operator": "Is"}]}, {"a": "b"}, "cannot be parsed"),
    ],
)
def test_a_pool_with_an_invalid_selector_is_a_terminal_error(selector, labels, why):
    one = pool()
    one.spec.selector = msgspec.convert(selector, LabelSelector)
    one.spec.virtual_machine_template.metadata.labels = labels
    with pytest.raises(TerminalError, match=why):
        selector_of(one)
