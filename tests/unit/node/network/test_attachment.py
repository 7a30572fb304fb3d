"""A node's addresses: when machines have them, and what is said when they cannot."""

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hollow.hypervisor import HollowNetworks
from corral.node.hypervisor import StartError
from corral.node.network.attachment import (
    NO_SANDBOX,
    RANGE_TIMEOUT_SECONDS,
    Networking,
    PodReference,
)
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError
from corral.node.network.pod_layout import PodNetworkSettings
from corral.node.network.pod_network import PodNetworks

TARGET = Key("default", "target")
POD = PodReference("default", "virt-launcher-u", "p")


class Plugins(HollowNetworks):
    """Networks that give addresses of their own."""

    async def allocate(self, owner, pod, vmi, ranges):
        if not ranges:
            raise NetworkError("no ranges", "Wait.")
        return (f"192.0.2.{len(pod.name)}",)


class Broken(HollowNetworks):
    """Networks that cannot be made."""

    def __init__(self) -> None:
        self.detached: list[str] = []

    async def attach(self, owner, vmi, addresses, *, held):
        raise NetworkError("the link cannot be made", "Make room.")

    async def adopt(self, owner, vmi, addresses, pid, *, held):
        raise NetworkError("the link is gone", "Look for it.")

    def detach(self, uid):
        self.detached.append(uid)


def vmi(uid: str = "u") -> VirtualMachineInstance:
    document = {"metadata": {"name": uid, "uid": uid}, "spec": {"domain": {"devices": {}}}}
    return msgspec.convert(document, VirtualMachineInstance)


async def test_without_networks_there_are_no_addresses():
    networking = Networking(None)
    assert await networking.addresses("vm", vmi(), POD) == ()
    assert await networking.attach("vm", vmi(), ()) is None
    networking.release("u")


async def test_a_machine_waits_for_the_pod_range_of_its_node():
    networking = Networking(HollowNetworks())
    waiting = asyncio.ensure_future(networking.addresses("vm", vmi(), POD))
    await asyncio.sleep(0)
    assert not waiting.done()
    networking.assign([])
    networking.assign(["10.244.0.0/24", "fd00::/64"])
    assert await waiting == ("10.244.0.2", "fd00::2")
    assert await networking.addresses("vm", vmi(), POD) == ("10.244.0.2", "fd00::2")


@pytest.mark.looptime
async def test_a_node_without_a_pod_range_reports_it():
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(StartError, match=r"no range of addresses yet \(spec.podCIDR\)") as raised:
        await Networking(HollowNetworks()).addresses("vm", vmi(), POD)
    assert raised.value.reason == NO_SANDBOX
    assert loop.time() - begun == pytest.approx(RANGE_TIMEOUT_SECONDS)


async def test_an_exhausted_range_is_reported_until_an_address_is_free():
    networking = Networking(HollowNetworks())
    networking.assign(["10.244.0.0/30"])
    await networking.addresses("first", vmi("first"), POD)
    with pytest.raises(StartError, match="no address is free") as raised:
        await networking.addresses("second", vmi("second"), POD)
    assert raised.value.reason == NO_SANDBOX
    networking.release("first")
    assert await networking.addresses("second", vmi("second"), POD) == ("10.244.0.2",)


async def test_recorded_addresses_stay_with_their_machines():
    networking = Networking(HollowNetworks())
    networking.restore("old", ["10.244.0.2"])
    networking.restore("of a user network", [])
    networking.assign(["10.244.0.0/24"])
    assert await networking.addresses("new", vmi("new"), POD) == ("10.244.0.3",)


async def test_an_address_that_a_machine_takes_along_is_not_given_to_another():
    networking = Networking(HollowNetworks())
    networking.assign(["10.244.0.0/30"])
    taken = await networking.addresses("left", vmi("left"), POD)
    networking.let_go("left", taken, "n2", TARGET)
    networking.release("left")
    with pytest.raises(StartError, match="no address is free"):
        await networking.addresses("new", vmi("new"), POD)
    networking.observe(TARGET, taken)  # the API shows it at last
    with pytest.raises(StartError, match="no address is free"):
        await networking.addresses("new", vmi("new"), POD)
    networking.observe(TARGET, ())
    assert await networking.addresses("new", vmi("new"), POD) == taken


async def test_an_address_of_another_nodes_range_is_kept_and_given_to_nobody():
    networking = Networking(HollowNetworks())
    networking.assign(["10.244.0.0/24"])
    assert networking.keep("arrived", ["10.244.9.9"]) == ("10.244.9.9",)
    networking.release("arrived")
    assert await networking.addresses("new", vmi("new"), POD) == ("10.244.0.2",)


async def test_a_reregistered_node_has_its_new_ranges():
    networks = Broken()
    networking = Networking(networks)
    networking.assign(["10.244.0.0/24"])
    assert await networking.addresses("old", vmi("old"), POD) == ("10.244.0.2",)
    networking.release("old")
    assert await networking.addresses("waiting", vmi("waiting"), POD) == ("10.244.0.3",)
    networking.assign(["10.244.0.0/24"])  # nothing new: a freed address still rests
    assert await networking.addresses("later", vmi("later"), POD) == ("10.244.0.4",)
    networking.assign([])
    networking.assign(["10.244.7.0/24"])
    assert await networking.addresses("new", vmi("new"), POD) == ("10.244.7.2",)
    assert networks.detached == ["old"]
    # one that did not come to run yet is joined anew
    assert await networking.addresses("waiting", vmi("waiting"), POD) == ("10.244.7.3",)
    assert networks.detached == ["old", "waiting"]


async def test_failures_are_reported_with_the_remedy():
    networks = Broken()
    networking = Networking(networks)
    with pytest.raises(StartError, match=r"the link cannot be made \(Make room.\)") as raised:
        await networking.attach("vm", vmi(), ["10.244.0.2"])
    assert raised.value.reason == NO_SANDBOX
    assert "the link is gone" in await networking.adopt("vm", vmi(), ["10.244.0.2"], 1)
    assert await networking.adopt("vm", vmi(), [], 1) == ""
    assert await networking.adopt("vm", vmi(), ["10.244.0.2"], None) == ""
    networking.release("u")
    assert networks.detached == ["u"]


async def test_the_address_of_a_machine_that_moved_to_another_node_stays_reserved():
    networking = Networking(HollowNetworks())
    networking.assign(["10.244.0.0/29"])
    assert await networking.addresses("moves", vmi("moves"), POD) == ("10.244.0.2",)
    networking.observe(TARGET, ["10.244.0.2"])
    networking.release("moves")
    others = [await networking.addresses(name, vmi(name), POD) for name in "abcd"]
    assert ("10.244.0.2",) not in others
    networking.observe(TARGET, [])
    assert await networking.addresses("e", vmi("e"), POD) == ("10.244.0.2",)


async def test_a_machine_keeps_an_address_of_another_nodes_range():
    networking = Networking(HollowNetworks())
    networking.assign(["10.244.0.0/24"])
    assert networking.keep("arrived", ["10.244.7.2"]) == ("10.244.7.2",)
    assert Networking(None).keep("arrived", ["10.244.7.2"]) == ()


async def test_addresses_of_a_network_that_could_not_be_adopted_do_not_fail_the_machine():
    settings = PodNetworkSettings(gateways=(), ranges=())
    networking = Networking(PodNetworks(Namespace(-1), settings))
    with capture_logs() as logs:
        await networking.take_over("arrived")
    assert [each["error"] for each in logs] == ["the pod's network could not be adopted"]


async def test_networks_may_give_addresses_of_their_own():
    networking = Networking(Plugins())
    with pytest.raises(StartError, match=r"Failed to create pod sandbox: no ranges") as raised:
        await networking.addresses("vm", vmi(), POD)
    assert raised.value.reason == NO_SANDBOX
    networking.assign(["10.244.0.0/24"])
    assert await networking.addresses("vm", vmi(), POD) == ("192.0.2.15",)
