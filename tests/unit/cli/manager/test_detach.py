"""What is said of a manager in the background that has no words for its end."""

from corral.cli.manager.detach import _exit_message


def test_who_was_ended_is_not_said_to_have_failed():
    assert _exit_message(-15) == "corral was killed while it started (SIGTERM)"
    assert _exit_message(3) == "corral ended with exit code 3"
