"""Joining a network's user namespace, as far as that needs no rights."""

import os

import pytest

from corral.node.host import process
from corral.node.host.proc import acquire_lock
from corral.node.network import namespace_holder
from corral.node.network.netlink import NetworkError


def test_root_does_not_join_the_namespace(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    namespace_holder.join(tmp_path / "holder")
    assert not (tmp_path / "holder").exists()


def test_a_failed_creation_of_the_namespace_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        namespace_holder,
        "_command",
        lambda: ["sh", "-c", "echo unshare: unshare failed: No space left; read x"],
    )
    with pytest.raises(NetworkError, match="no user namespace can be created: No space left"):
        namespace_holder.join(tmp_path / "holder")
    assert not process.runs(tmp_path / "holder")


def test_a_missing_program_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespace_holder, "_command", lambda: ["no-such-program"])
    with pytest.raises(NetworkError) as caught:
        namespace_holder.join(tmp_path / "holder")
    assert "Install it: apt-get install util-linux" in caught.value.full_message


def test_a_namespace_of_another_user_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespace_holder, "_enter_user_namespace", lambda identity: False)
    (tmp_path / "holder").mkdir()
    lock = acquire_lock(tmp_path / "holder")
    assert lock is not None
    try:
        with pytest.raises(NetworkError, match="a process of another user holds"):
            namespace_holder.join(tmp_path / "holder")
    finally:
        os.close(lock)
