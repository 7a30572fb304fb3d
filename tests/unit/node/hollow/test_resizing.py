"""The size of a hollow machine, which outlives its manager."""

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hollow.resizing import HollowResizing, initial_size
from corral.node.hypervisor import GuestError, GuestSize

GIB = 1 << 30


def vmi(status=None, **cpu):
    document = {
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {
                "cpu": {"sockets": 2, **cpu},
                "memory": {"guest": "1Gi"},
                "devices": {},
            }
        },
        "status": status or {},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def test_a_new_guest_has_what_its_spec_says():
    assert initial_size(vmi()) is None, "it has no room"
    assert initial_size(vmi(maxSockets=4)) == GuestSize(2, GIB)


def test_a_guest_that_moves_keeps_what_was_plugged_in():
    status = {
        "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "3Gi"},
    }
    assert initial_size(vmi(status, maxSockets=4)) == GuestSize(1, GIB, 2 * GIB, 2 * GIB)


async def test_what_is_plugged_in_outlives_the_manager(tmp_path):
    heard = []
    resizing = HollowResizing(tmp_path)
    resizing.on_changed(lambda: heard.append("changed"))
    resizing.set_initial(GuestSize(1, GIB))
    await resizing.plug_processors(2)
    await resizing.request_memory(GIB)
    assert heard == ["changed"]
    assert await HollowResizing(tmp_path).query() == GuestSize(2, GIB, GIB, GIB)


async def test_a_stubborn_guest_takes_memory_later(tmp_path):
    resizing = HollowResizing(tmp_path)
    resizing.set_initial(GuestSize(1, GIB))
    resizing.stubborn = True
    await resizing.request_memory(GIB)
    assert (await resizing.query()).memory_bytes == GIB
    await resizing.comply()
    assert (await resizing.query()).memory_bytes == 2 * GIB


async def test_requests_fail_as_set(tmp_path):
    resizing = HollowResizing(tmp_path)
    resizing.set_initial(GuestSize(1, GIB))
    resizing.fault = "no"
    with pytest.raises(GuestError, match="no"):
        await resizing.plug_processors(2)
