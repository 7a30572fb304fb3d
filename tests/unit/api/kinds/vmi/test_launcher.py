"""Which VMIs are outdated, and how that is said."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from tests.unit.controllers.make import make_vmi

from corral.api.kinds.vmi.launcher import (
    NODE_LAUNCHER,
    UNRECORDED,
    difference,
    is_outdated,
    launcher,
)

OLD, NEW = launcher("QEMU 7.2.21 (Debian 1)"), launcher("QEMU 7.2.22 (Debian 2)")


def node(starts):
    annotations = {NODE_LAUNCHER: starts} if starts else {}
    return msgspec.convert({"metadata": {"name": "one", "annotations": annotations}}, Node)


@pytest.mark.parametrize(
    ("runs", "starts", "phase", "outdated"),
    [
        (OLD, NEW, "Running", True),
        (NEW, OLD, "Running", True),
        (UNRECORDED, NEW, "Running", True),
        (NEW, NEW, "Running", False),
        ("", NEW, "Running", False),
        (OLD, "", "Running", False),
        (OLD, NEW, "Failed", False),
        (OLD, NEW, "Succeeded", False),
    ],
)
def test_a_vmi_is_outdated_if_its_node_starts_machines_in_another_launcher(
    runs, starts, phase, outdated
):
    vmi = make_vmi(phase=phase, node="one")
    vmi.status.launcher_container_image_version = runs
    assert is_outdated(vmi, node(starts)) is outdated
    assert not is_outdated(vmi, None)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (OLD, "it runs in QEMU 7.2.21 (Debian 1), its node starts QEMU 7.2.22 (Debian 2)"),
        (UNRECORDED, "it was started by an earlier corral"),
        ("corral/launcher:0 QEMU 7.2.22 (Debian 2)", "it was started by an earlier corral"),
    ],
)
def test_the_difference_is_described(runs, text):
    assert difference(runs, NEW) == text
