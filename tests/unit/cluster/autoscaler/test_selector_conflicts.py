"""Which autoscalers look after which pods."""

import pytest
from hypothesis import given, strategies as st
from lightkube.models.core_v1 import Pod
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.object import Key
from corral.api.selectors import LabelSelector, parse_labels
from corral.cluster.autoscaler.selector_conflicts import SelectorConflicts

WEB, DATABASE = Key("default", "web"), Key("default", "database")


def pod(namespace: str = "default", **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name="pod", namespace=namespace, labels=labels))


def knowing(**selectors: str) -> SelectorConflicts:
    known = SelectorConflicts()
    for name, text in selectors.items():
        known.set(Key("default", name), parse_labels(text))
    return known


@pytest.mark.parametrize("text", ["app=web", "app in (web,other)", "app", "app!=other", ""])
def test_an_autoscaler_is_found_by_its_pods(text):
    known = knowing(web=text, database="app=database")
    assert known.of([pod(app="web")]) == [WEB]
    assert known.of([pod("elsewhere", app="web")]) == []


def test_all_autoscalers_of_a_pod_are_found():
    known = knowing(web="app=web", database="tier=back")
    assert known.of([pod(app="web"), pod(tier="back")]) == [DATABASE, WEB]
    assert known.of([pod(app="web", tier="back")]) == [DATABASE, WEB]
    assert known.of([]) == []


def test_removed_or_changed_autoscalers_are_not_found():
    known = knowing(web="app=web", database="app=web")
    known.set(DATABASE, parse_labels("app=database"))
    assert known.of([pod(app="web")]) == [WEB]
    known.forget(WEB)
    known.forget(WEB)
    assert known.of([pod(app="web")]) == []


TEXTS = st.sampled_from(["a=1", "a=2", "a=1,b=1", "b!=1", "a in (1,2)", "!a", "b", ""])
LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("123"))


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | TEXTS)), st.lists(LABELS, max_size=3))
def test_the_index_finds_what_a_full_scan_finds(changes, labels):
    known, plain = SelectorConflicts(), dict[Key, LabelSelector]()
    for number, text in changes:
        key = Key("default", str(number))
        if text is None:
            known.forget(key)
            plain.pop(key, None)
        else:
            plain[key] = parse_labels(text)
            known.set(key, plain[key])
    pods = [pod(**each) for each in labels]
    proposed = {key for key, one in plain.items() if any(map(one.matches, labels))}
    assert known.of(pods) == sorted(proposed)
