"""Where the API cannot listen, the address is named as people write it, and what helps."""

import errno
import os

import pytest

from corral.server.transport.listener import ListenOptions, _cannot_listen


@pytest.mark.parametrize(
    ("host", "number", "message"),
    [
        ("::1", errno.EADDRINUSE, "[::1]:7443 is taken by another program; stop it, or"),
        (
            "::1",
            errno.EADDRNOTAVAIL,
            "[::1]:7443: this host has no such address (any more); choose",
        ),
        (
            "10.0.0.1",
            errno.EACCES,
            "10.0.0.1:7443 may not be used by this user; choose a port above",
        ),
        ("10.0.0.1", errno.EIO, "10.0.0.1:7443 cannot be listened on: Input/output error"),
    ],
)
def test_errors_of_listening_name_the_address_and_the_remedy(host, number, message):
    error = OSError(number, os.strerror(number))
    assert _cannot_listen(host, 7443, error, ListenOptions()).startswith(message)


@pytest.mark.parametrize(
    ("number", "option"),
    [
        (errno.EADDRINUSE, "--port"),
        (errno.EACCES, "--port"),
        (errno.EADDRNOTAVAIL, "--address"),
    ],
)
def test_the_options_of_a_joined_node_are_named(number, option):
    error = OSError(number, os.strerror(number))
    message = _cannot_listen("::1", 7443, error, ListenOptions("--address", "--port"))
    assert message.endswith(f" with {option}")
