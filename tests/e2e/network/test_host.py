"""The link to the host is made whole, whatever was left of it."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a link to the host"),
]


def test_a_partial_host_link_is_completed():
    command = [sys.executable, "-W", "error", "-m", "tests.e2e.network.host_session"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert saw
    assert saw == {what: [[], True] for what in saw}
