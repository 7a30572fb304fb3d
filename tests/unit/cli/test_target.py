"""Machines are named as virtctl names them, and refused in its words."""

import pytest

from corral.cli.problem import Problem
from corral.cli.target import Target, machine, target


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
def test_targets(text, expected):
    assert target(text, "here") == expected


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_what_names_no_machine(text, said):
    with pytest.raises(Problem, match=f"^{said}$"):
        target(text, "here")


def test_a_console_needs_no_type():
    assert machine("web", "here") == Target("vmi", "web", "here")
    assert machine("web.of.mine", "here") == Target("vmi", "web.of.mine", "here")
    assert machine("vmi/web/there", "here") == Target("vmi", "web", "there")


def test_a_name_cannot_leave_its_place_in_the_path():
    path = target("vmi/a?b#c", "x").path("console")
    assert path == (
        "/apis/subresources.kubevirt.io/v1/namespaces/x/virtualmachineinstances/a%3Fb%23c/console"
    )
