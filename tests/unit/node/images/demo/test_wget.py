"""The guest's wget, run by the host's shell: which words BusyBox gets, and how much time."""

import os
import subprocess
from importlib.resources import files

import pytest

WGET = files("corral.node.images.demo") / "guest/bin/wget"


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("-q http://a", "busybox wgeT -q http://a"),
        ("-T 5 -O - http://a", "timeout 5 busybox wgeT -O - http://a"),
        ("-T5 http://a -O x", "timeout 5 busybox wgeT http://a -O x"),
        ("-qT 5 -O- http://a", "timeout 5 busybox wgeT -q -O- http://a"),
        ("-cqT5 http://a", "timeout 5 busybox wgeT -cq http://a"),
        ("--timeout=5 http://a", "timeout 5 busybox wgeT http://a"),
        ("http://a --timeout 5", "timeout 5 busybox wgeT http://a"),
        ("-T 0 http://a", "busybox wgeT http://a"),
        ("-O Ted http://T", "busybox wgeT -O Ted http://T"),
    ],
)
def test_a_time_limit_is_kept_by_timeout(tmp_path, words, runs):
    for name in ("busybox", "timeout"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    done = subprocess.run(
        ["sh", str(WGET), *words.split()],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{runs}\n"


def test_a_timeout_fails_as_in_wget(tmp_path):
    program = tmp_path / "timeout"
    program.write_text("#!/bin/sh\nexit 143\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", str(WGET), "-T", "1", "http://a"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "wget: download timed out\n")
