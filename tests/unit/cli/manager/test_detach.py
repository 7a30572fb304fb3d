"""The exit message of a detached manager that printed no error."""

import os
import subprocess
import sys

from corral.cli.manager.detach import _exit_message
from corral.config import Layout


def test_the_exit_message_names_the_signal_or_the_code():
    assert _exit_message(-15) == "corral was killed while it started (SIGTERM)"
    assert _exit_message(3) == "corral ended with exit code 3"


def test_the_log_is_its_owners_alone(tmp_path):
    """Also in a directory that others may list, and where the start fails."""
    layout = Layout(tmp_path)
    options = ["--token", "abcdef.0123456789abcdef", "--ca-hash", f"sha256:{'0' * 64}", "--detach"]
    ended = subprocess.run(
        [sys.executable, "-m", "corral", "join", "https://127.0.0.1:1", *options],
        env={**os.environ, "CORRAL_DATA_DIR": str(tmp_path)},
        umask=0o022,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode != 0
    assert layout.log.stat().st_mode & 0o777 == 0o600
