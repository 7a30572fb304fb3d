"""The examples of a landing: the same ones each time, in whatever order tests run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DRAWN_TWICE = """
from hypothesis import given, settings, strategies as st
import tests.conftest

def drawn():
    found = []

    @settings(max_examples=500, database=None)
    @given(st.integers() | st.text())
    def draw(one):
        found.append(one)

    draw()
    return found

before = drawn()
import corral.api.quantity, corral.api.time, corral.config
assert drawn() == before
"""


def test_examples_do_not_depend_on_what_is_imported():
    environment = {**os.environ, "CI": "true", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-c", DRAWN_TWICE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
