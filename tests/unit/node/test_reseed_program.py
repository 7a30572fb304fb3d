"""The program that has a guest's kernel reseed its random numbers."""

import errno
import subprocess

from corral.node.reseed_program import RESEED


def test_the_program_asks_for_a_reseed_and_returns_the_error(tmp_path):
    program = tmp_path / "reseed"
    program.write_bytes(RESEED)
    program.chmod(0o700)
    with (tmp_path / "file").open("w") as no_random_device:
        done = subprocess.run([program], stdout=no_random_device, check=False)
    assert done.returncode == errno.ENOTTY


def test_the_program_can_be_written_by_printf(tmp_path):
    assert b"%" not in RESEED
    escaped = "".join(f"\\{byte:03o}" for byte in RESEED)
    command = ["sh", "-c", 'printf "$1"', "sh", escaped]
    assert subprocess.run(command, capture_output=True, check=True).stdout == RESEED
