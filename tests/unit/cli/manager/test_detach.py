"""The exit message of a detached manager that printed no error."""

from corral.cli.manager.detach import _exit_message


def test_the_exit_message_names_the_signal_or_the_code():
    assert _exit_message(-15) == "corral was killed while it started (SIGTERM)"
    assert _exit_message(3) == "corral ended with exit code 3"
