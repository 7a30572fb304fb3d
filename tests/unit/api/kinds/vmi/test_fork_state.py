"""Whether the guest of a VMI that starts from a checkpoint is no other's."""

import msgspec
import pytest

from corral.api.kinds.vmi.fork_state import has_booted_instead, has_own_identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance


def vmi(reason="", *, starts_from="base"):
    conditions = [{"type": "Forked", "status": "False", "reason": reason}] if reason else []
    document = {
        "metadata": {"name": "vm", "annotations": {"corral.dev/start-from": starts_from}},
        "spec": {"domain": {"devices": {}}},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.mark.parametrize(
    ("reason", "own", "booted"),
    [
        ("", False, False),
        ("IdentityPending", False, False),
        ("IdentityShared", False, False),
        ("IdentityRenewed", True, False),
        ("ForkFailed", True, True),
    ],
)
def test_a_fork_is_itself_once_it_was_renewed_or_has_booted(reason, own, booted):
    fork = vmi(reason)
    assert (has_own_identity(fork), has_booted_instead(fork)) == (own, booted)


def test_a_vmi_that_boots_is_itself():
    assert has_own_identity(vmi(starts_from=""))
