"""``corral migrate`` and ``migrate-cancel``: names and labels, before anybody is asked."""

import pytest

from corral.cli.errors import Problem
from corral.cli.virtctl.migration import _labels, _targets


@pytest.mark.parametrize(
    ("words", "kinds"),
    [(["a"], ["vm", "vmi"]), (["vm", "a"], ["vm"]), (["vmi", "a"], ["vmi"]), (["vmi/a"], ["vmi"])],
)
def test_a_bare_name_is_a_vm_or_else_a_vmi(words, kinds):
    found = _targets(words, "default")
    assert [each.kind for each in found] == kinds
    assert {(each.name, each.namespace) for each in found} == {("a", "default")}


@pytest.mark.parametrize("words", [["pod", "a"], ["a", "b", "c"], ["vm/"]])
def test_other_names_are_refused(words):
    with pytest.raises(Problem):
        _targets(words, "default")


def test_labels_are_read():
    assert _labels("") == {}
    assert _labels("zone=a,disk=") == {"zone": "a", "disk": ""}


@pytest.mark.parametrize("text", ["zone", "=a", "zone=a,b"])
def test_labels_without_a_value_are_refused(text):
    with pytest.raises(Problem, match="is not a list of labels"):
        _labels(text)
