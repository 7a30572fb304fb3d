"""Room for memory on the command line."""

from dataclasses import replace
from pathlib import Path

from tests.unit.node.qemu.test_argv import devices, domain, objects, value

from corral.api.kinds.vmi.status import MemoryStatus
from corral.node.qemu.argv import argv

GIB = 1 << 30


def test_a_machine_without_room_has_no_device():
    arguments = argv(domain({"memory": {"guest": "1Gi"}}))
    assert value(arguments, "-m") == "1048576K"
    assert "virtio-mem-pci" not in devices(arguments)


def test_a_machine_with_room_has_an_empty_device():
    arguments = argv(domain({"memory": {"guest": "1Gi", "maxGuest": "4Gi"}}))
    assert value(arguments, "-m") == "1048576K,maxmem=4194304K"
    device = devices(arguments)["virtio-mem-pci"]
    assert (device["id"], device["requested-size"]) == ("memory0", 0)
    [backend] = [each for each in objects(arguments, "-object") if each["id"] == device["memdev"]]
    assert backend["size"] == 3 * GIB
    assert backend["reserve"] is False


def test_a_fork_maps_a_private_copy_of_a_file_as_large_as_its_memory():
    fork = replace(domain({"memory": {"guest": "64M"}}), pages=Path("/checkpoint/memory"))
    arguments = argv(fork)
    assert value(arguments, "-machine").endswith(",memory-backend=pc.ram")
    assert objects(arguments, "-object") == [
        {
            "qom-type": "memory-backend-file",
            "id": "pc.ram",
            "mem-path": "/checkpoint/memory",
            "size": 64_004_096,  # QEMU rounds -m up to 8 KiB
            "share": False,
        }
    ]


def test_a_strict_host_reserves_what_may_be_plugged_in():
    roomy = replace(domain({"memory": {"guest": "1Gi", "maxGuest": "4Gi"}}), is_strict=True)
    [backend] = objects(argv(roomy), "-object")
    assert backend["reserve"] is True


def test_a_machine_that_receives_a_guest_has_the_memory_that_it_booted_with():
    grown = domain({"memory": {"guest": "2Gi", "maxGuest": "4Gi"}})
    grown.vmi.status.memory = MemoryStatus(guest_at_boot="1Gi", guest_current="2Gi")
    arguments = argv(grown)
    assert value(arguments, "-m") == "1048576K,maxmem=4194304K"
