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
def test_machines_take_the_devices_group_only_where_it_may_open_it(mode, group, needed, opens):
    found = device(mode, group)
    assert kvm_rights.group_of_machines(found) == needed
    assert kvm_rights.opens_for_machines(found) is opens


def test_nobody_is_sent_into_a_group_that_may_not_open_it():
    for mode, group in ((0o600, ROOTS), (0o660, ROOTS), (0o600, OTHERS)):
        told = kvm_rights.refused_to_us(KVM, device(mode, group))
        name = grp.getgrgid(group).gr_name
        assert (
            f"it belongs to root:{name} with mode {mode:o}. As root: chgrp kvm /dev/kvm; " in told
        )
        assert "chmod 660 /dev/kvm; usermod -aG kvm " in told


def test_a_group_that_may_open_it_is_named_as_it_is():
    told = kvm_rights.refused_to_us(KVM, device(0o660, OTHERS))
    assert f"it is for the group {NAME}. As root: usermod -aG {NAME} " in told
    assert "chmod" not in told


def test_in_a_namespace_where_groups_have_no_names_none_is_guessed():
    """The manager of an ordinary user has joined one by then, for its network."""
    closed, open_ = (kvm_rights.refused_to_us(KVM, device(mode, 65534)) for mode in (0o600, 0o660))
    assert "it belongs to others and has mode 600. As root: chgrp kvm /dev/kvm; chmod 660" in closed
    assert "chgrp kvm /dev/kvm, if it has another group (ls -l /dev/kvm); usermod -aG kvm" in open_
    assert not {"nogroup", "nobody"} & set((closed + open_).replace(":", " ").split())


def test_who_is_in_the_group_already_is_told_to_log_in_again(monkeypatch):
    user = kvm_rights._user()
    entry = grp.struct_group((NAME, "x", OTHERS, [user]))
    monkeypatch.setattr(kvm_rights.grp, "getgrgid", lambda _: entry)
    told = kvm_rights.refused_to_us(KVM, device(0o660, OTHERS))
    assert told.endswith(f"its group {NAME} after you logged in. Then log in again")
