"""Targets of commands, with virtctl's grammar and messages."""

import pytest

from corral.cli.errors import Problem
from corral.cli.virtctl.target import Target, parse_target, vm_target, vmi_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vmi/web", Target("vmi", "web", "here")),
        ("vmi/web/there", Target("vmi", "web", "there")),
        ("vm/web", Target("vm", "web", "here")),
        ("VMIs/web", Target("vmi", "web", "here")),
        ("VirtualMachineInstance/web", Target("vmi", "web", "here")),
        ("virtualmachines/web/there", Target("vm", "web", "there")),
        ("vmi/web.of.mine", Target("vmi", "web.of.mine", "here")),
        ("vmi.web", Target("vmi", "web", "here")),
        ("vmi.web.there", Target("vmi", "web", "there")),
        ("vmi.web.of.mine.there", Target("vmi", "web.of.mine", "there")),
    ],
)
def test_targets_are_parsed(text, expected):
    assert parse_target(text, "here") == expected


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("", "target cannot be empty"),
        ("web", "target must contain type and name separated by '/'"),
        ("web.there", "target must contain type and name separated by '/'"),
        ("vmi/", "name cannot be empty"),
        ("vmi/web/", "namespace cannot be empty"),
        ("vmi/web/there/or/so", "target is not valid with more than two '/'"),
        ("pod/web", "unsupported resource type 'pod'"),
    ],
)
def test_invalid_targets_are_rejected(text, expected_message):
    with pytest.raises(Problem, match=f"^{expected_message}$"):
        parse_target(text, "here")


def test_a_console_needs_no_type():
    assert vmi_target("web", "here") == Target("vmi", "web", "here")
    assert vmi_target("web.of.mine", "here") == Target("vmi", "web.of.mine", "here")
    assert vmi_target("vmi/web/there", "here") == Target("vmi", "web", "there")


def test_the_console_of_a_vm_is_that_of_its_vmi():
    assert vmi_target("vm/web", "here") == Target("vmi", "web", "here")


@pytest.mark.parametrize("words", [["web"], ["vm", "web"], ["VirtualMachines", "web"], ["vm/web"]])
def test_a_virtual_machine_is_named_with_or_without_its_kind(words):
    assert vm_target(words, "here") == Target("vm", "web", "here")


def test_a_virtual_machine_may_be_called_vm():
    assert vm_target(["vm"], "here") == Target("vm", "vm", "here")
    assert vm_target(["vm/web/there"], "here") == Target("vm", "web", "there")


@pytest.mark.parametrize(
    ("words", "expected_message"),
    [
        (["vmi", "web"], "vmi web is no VirtualMachine: it runs once, from its start on"),
        (["vmi/web"], "vmi web is no VirtualMachine: it runs once, from its start on"),
        (["pod", "web"], "unsupported resource type 'pod'"),
        (["vm", "web", "more"], "accepts 1 arg(s), received 3"),
        (["vm", ""], "name cannot be empty"),
    ],
)
def test_invalid_virtual_machines_are_rejected(words, expected_message):
    with pytest.raises(Problem) as problem:
        vm_target(words, "here")
    assert problem.value.message == expected_message


def test_names_are_escaped_in_the_path():
    path = parse_target("vmi/a?b#c", "x").path("console")
    assert path == (
        "/apis/subresources.kubevirt.io/v1/namespaces/x/virtualmachineinstances/a%3Fb%23c/console"
    )
