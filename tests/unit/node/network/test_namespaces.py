"""Network namespaces of processes."""

import os

import pytest

from corral.node.network.namespaces import Namespace


def test_the_namespace_of_the_host_is_not_that_of_a_pod():
    with pytest.raises(OSError, match="no network namespace of its own"):
        Namespace.of_process(os.getpid())


def test_a_process_that_has_ended_has_none():
    with pytest.raises(FileNotFoundError):
        Namespace.of_process(2**22 + 1)  # above the kernel's largest
