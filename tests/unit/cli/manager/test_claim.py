"""``corral claim`` and ``corral release``: options and output."""

import msgspec
import pytest

from corral.api.kinds.corral.claim import VirtualMachineClaim
from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.manager.claim import _lines, _script

CLAIM = {
    "metadata": {"name": "job-7"},
    "spec": {"warmPoolRef": {"name": "spares"}},
    "status": {
        "vmi": {"name": "test1", "uid": "u", "podName": "virt-launcher-test1-x"},
        "addresses": ["10.0.0.2", "fd00::2"],
        "ssh": "corral ssh vmi/test1/default",
    },
}


@pytest.fixture
def bound():
    return msgspec.convert(CLAIM, VirtualMachineClaim)


def test_a_bound_claim_is_printed_with_how_its_machine_is_reached(bound):
    assert list(_lines(bound, None)) == [
        "name     job-7",
        "machine  test1",
        "pod      virt-launcher-test1-x",
        "address  10.0.0.2",
        "ssh      corral ssh vmi/test1/default",
    ]


@pytest.mark.parametrize(
    ("output", "line"),
    [("name", "job-7"), ("machine", "test1"), ("pod", "virt-launcher-test1-x")],
)
def test_one_value_may_be_printed_alone(bound, output, line):
    assert list(_lines(bound, output)) == [line]


def test_user_data_is_read_from_a_file(tmp_path):
    assert _script(None) == ""
    file = tmp_path / "setup.sh"
    file.write_text("#!/bin/sh\n")
    assert _script(file) == "#!/bin/sh\n"
    file.write_text("#!" + "x" * 20_000)
    with pytest.raises(Problem, match="more than 16384 bytes"):
        _script(file)
    file.write_bytes(b"\xff")
    with pytest.raises(Problem, match="cannot be read"):
        _script(file)
    with pytest.raises(Problem, match="cannot be read"):
        _script(tmp_path / "missing")


@pytest.mark.parametrize("command", ["claim", "release"])
def test_help_has_examples(capsys, command):
    assert run([command, "--help"]) == 0
    assert f"corral {command} " in capsys.readouterr().out
