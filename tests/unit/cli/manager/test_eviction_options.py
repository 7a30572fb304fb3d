"""What a host is to have left, as it is asked for at the command line."""

import pytest
from click.testing import CliRunner

from corral.cli.main import corral
from corral.cli.manager.eviction_options import eviction_hard
from corral.config import THRESHOLDS


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--eviction-hard", "cpu.available<1", "unsupported eviction signal"),
        ("--eviction-pressure-transition-period", "soon", "soon"),
        ("--eviction-pressure-transition-period", "-1s", "-1s"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, option, value, why):
    said = CliRunner().invoke(corral, ["up", "--data-dir", str(tmp_path), f"{option}={value}"])
    assert said.exit_code == 2
    assert why in said.output


def test_simulated_machines_take_nothing_of_the_host():
    assert eviction_hard(None, "qemu") == THRESHOLDS
    assert eviction_hard(None, "hollow") == "none"
    assert eviction_hard("pid.available<1", "hollow") == "pid.available<1"
