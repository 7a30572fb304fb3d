"""A set takes what its selector matches, and none is believed that takes what it never made."""

import pytest
from lightkube.models.meta_v1 import LabelSelector, LabelSelectorRequirement

from corral.reconcile.controller import TerminalError
from corral.reconcile.selectors import own_selector

LABELS = {"app": "a"}


def found(selector, labels=LABELS):
    return own_selector(selector, labels, template="spec.template")


def test_a_valid_selector_matches_the_template_only():
    selector = found(LabelSelector(matchLabels=LABELS))
    assert selector.matches({"app": "a", "more": "b"})
    assert not selector.matches({"app": "b"})


@pytest.mark.parametrize(
    ("selector", "labels", "why"),
    [
        (None, LABELS, "does not match"),
        (LabelSelector(), LABELS, "is empty"),
        (LabelSelector(matchLabels={"app": "b"}), LABELS, "does not match spec.template.metadata"),
        (LabelSelector(matchLabels=LABELS), {}, "does not match"),
        (
            LabelSelector(matchExpressions=[LabelSelectorRequirement("app", "DoesNotExist")]),
            {},
            "does not match",
        ),
        (
            LabelSelector(matchExpressions=[LabelSelectorRequirement("app", "Sometimes")]),
            LABELS,
            "cannot be parsed",
        ),
    ],
)
def test_an_invalid_selector_is_a_terminal_error(selector, labels, why):
    with pytest.raises(TerminalError, match=f"spec.selector.*{why}"):
        found(selector, labels)
