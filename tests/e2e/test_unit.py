"""systemd itself says whether the unit that ``corral up --systemd`` writes is well-formed."""

import subprocess
from pathlib import Path

import pytest

from corral.cli.manager import systemd_unit
from corral.config import Layout

pytestmark = pytest.mark.e2e
AWKWARD = "/srv/my lab%h $HOME ü\"'\\;"


@pytest.mark.parametrize("version", [252, 257])
def test_systemd_understands_the_unit(tmp_path, version):
    file = tmp_path / "corral-test.service"
    text = systemd_unit.text(
        Layout(Path(AWKWARD)), ["--bind", ":1"], of_user=False, version=version
    )
    file.write_text(text)
    command = ["systemd-analyze", "--man=no", "verify", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if file.name in line]
    assert [each for each in complaints if "DelegateSubgroup" not in each] == []
    spoilt = text.replace("Type=notify", "Type=nonsense")
    file.write_text(spoilt)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "nonsense" in done.stderr
