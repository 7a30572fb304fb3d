import msgspec
import pytest
from tests.unit.controllers.make import replica_set

from corral.controllers.replicaset.replicaset_controller import selector_of
from corral.reconcile.controller import TerminalError


def with_selector(**selector):
    one = replica_set(labels={"app": "web", "tier": "front"})
    one.spec.selector = msgspec.convert(selector, type(one.spec.selector))
    return one


def test_a_selector_has_a_canonical_text():
    assert str(selector_of(with_selector(matchLabels={"tier": "front", "app": "web"}))) == (
        "app=web,tier=front"
    )


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "other"}},
        {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]},
        {"matchLabels": {"not a key": "x"}},
        {},
        {"matchLabels": {}, "matchExpressions": []},
    ],
)
def test_a_selector_that_does_not_match_the_template_or_matches_everything_is_terminal(selector):
    with pytest.raises(TerminalError, match=r"^spec\.selector "):
        selector_of(with_selector(**selector))


def test_a_template_without_labels_is_terminal():
    one = replica_set()
    one.spec.template.metadata.labels = {}
    with pytest.raises(TerminalError):
        selector_of(one)
