"""Eviction thresholds on the command line."""

import pytest
from click.testing import CliRunner

from corral.cli.main import corral
from corral.cli.manager.eviction_options import eviction_hard
from corral.config import THRESHOLDS


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--eviction-hard", "cpu.available<1", "unsupported eviction signal"),
        ("--eviction-pressure-transition-period", "soon", "soon"),
        ("--eviction-pressure-transition-period", "-1s", "-1s"),
    ],
)
def test_invalid_values_are_rejected(tmp_path, option, value, message):
    result = CliRunner().invoke(corral, ["up", "--data-dir", str(tmp_path), f"{option}={value}"])
    assert result.exit_code == 2
    assert message in result.output


def test_hollow_machines_have_no_default_thresholds():
    assert eviction_hard(None, "qemu") == THRESHOLDS
    assert eviction_hard(None, "hollow") == "none"
    assert eviction_hard("pid.available<1", "hollow") == "pid.available<1"
