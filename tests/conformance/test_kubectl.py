"""Every command of the user guide and of kubectl's daily use, by unmodified kubectl."""

from pathlib import Path

import pytest
from tests.conformance.transcript import play

SESSIONS = sorted((Path(__file__).parent / "sessions").glob("*.txt"))

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_session(session, shell):
    play(session.read_text(), shell)
