"""Who a machine runs as."""

import os

from corral.node.qemu import process_user as accounts
from corral.node.qemu.process_user import account, privileges


def test_without_root_machines_run_as_the_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert account("0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c") is None
    assert privileges(None) == []


def test_root_gives_each_machine_its_own_user(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(accounts, "_mapped", lambda uid: True)
    one = account("0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c")
    other = account("0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2d")
    assert one.uid != other.uid
    assert one.uid >= 0x70000000
    assert one.gid == one.uid
    tmp_path.chmod(0o700)
    alone = account("", device=tmp_path)
    assert alone.gid == alone.uid
    tmp_path.chmod(0o770)
    assert account("", device=tmp_path).gid == (tmp_path.stat().st_gid or alone.uid)
    command = privileges(one)
    assert command[0] == "setpriv"
    assert {"--clear-groups", "--no-new-privs", "--bounding-set=-all"} <= set(command)


def test_root_without_a_uid_range_uses_nobody(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(accounts, "_mapped", lambda uid: False)
    assert account("0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c").uid == 65534
