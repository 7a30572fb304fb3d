"""What is said of /dev/kvm follows from whose it is: a group helps only where it may open it."""

import grp
import os
from pathlib import Path

import pytest

from corral.node.qemu import kvm_rights

KVM = Path("/dev/kvm")
ROOTS, OTHERS = (
    0,
    next(each.gr_gid for each in grp.getgrall() if 0 < each.gr_gid < 65534 and not each.gr_mem),
)
NAME = grp.getgrgid(OTHERS).gr_name


def device(mode, group):
    return os.stat_result((0o020000 | mode, 1, 1, 1, 0, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "group", "needed", "opens"),
    [
        (0o600, ROOTS, None, False),
        (0o660, ROOTS, None, False),
        (0o666, ROOTS, None, True),
        (0o660, OTHERS, OTHERS, True),
        (0o666, OTHERS, OTHERS, True),
        (0o600, OTHERS, None, False),
        (0o640, OTHERS, None, False),
    ],
)
def test_machines_get_the_devices_group_only_if_it_can_open_the_device(mode, group, needed, opens):
    found = device(mode, group)
    assert kvm_rights.group_of_machines(found) == needed
    assert kvm_rights.opens_for_machines(found) is opens


def test_a_group_that_cannot_open_the_device_is_not_suggested():
    for mode, group in ((0o600, ROOTS), (0o660, ROOTS), (0o600, OTHERS)):
        reason = kvm_rights.refused_to_us(KVM, device(mode, group))
        name = grp.getgrgid(group).gr_name
        assert (
            f"it belongs to root:{name} with mode {mode:o}. As root: chgrp kvm /dev/kvm; " in reason
        )
        assert "chmod 660 /dev/kvm; usermod -aG kvm " in reason


def test_a_group_that_can_open_the_device_is_suggested_by_name():
    reason = kvm_rights.refused_to_us(KVM, device(0o660, OTHERS))
    assert f"it is for the group {NAME}. As root: usermod -aG {NAME} " in reason
    assert "chmod" not in reason


def test_a_group_without_a_name_is_not_suggested():
    """The manager of an ordinary user has joined one by then, for its network."""
    closed, open_ = (kvm_rights.refused_to_us(KVM, device(mode, 65534)) for mode in (0o600, 0o660))
    assert "it belongs to others and has mode 600. As root: chgrp kvm /dev/kvm; chmod 660" in closed
    assert "chgrp kvm /dev/kvm, if it has another group (ls -l /dev/kvm); usermod -aG kvm" in open_
    assert not {"nogroup", "nobody"} & set((closed + open_).replace(":", " ").split())


def test_a_member_of_the_group_is_advised_to_log_in_again(monkeypatch):
    user = kvm_rights._user()
    entry = grp.struct_group((NAME, "x", OTHERS, [user]))
    monkeypatch.setattr(kvm_rights.grp, "getgrgid", lambda _: entry)
    reason = kvm_rights.refused_to_us(KVM, device(0o660, OTHERS))
    assert reason.endswith(f"its group {NAME} after you logged in. Then log in again")
