"""What is said of a manager in the background that has no words for its end."""

from corral.cli.manager.detach import _ended


def test_who_was_ended_is_not_said_to_have_failed():
    assert _ended(-15) == "somebody ended corral up while it started (SIGTERM)"
    assert _ended(3) == "corral up ended with exit code 3"
