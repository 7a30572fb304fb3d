"""Networks of pods by plugins: added, adopted, checked and released, whatever the plugins do."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.network import netlink
from corral.node.network.attachment import PodReference
from corral.node.network.cni import networks as cni
from corral.node.network.cni.attachments import NAMESPACES, Attachments
from corral.node.network.cni.networks import CniNetworks, CniSettings
from corral.node.network.namespaces import unbind
from corral.node.network.netlink import NetworkError

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="plugins need root"),
]

POD = PodReference("default", "virt-launcher-web", "11111111-2222-4333-8444-555555555555")
SCRIPT = """#!/bin/sh
# A plugin with one address, whose behaviour follows the files beside it.
here=${0%/*}
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS" >> $here/log
[ -e $here/hang-$CNI_COMMAND ] && { : > $here/hangs; sleep 1000; }
[ -e $here/fail-$CNI_COMMAND ] && { echo '{"code": 11, "msg": "try later"}'; exit 1; }
case $CNI_COMMAND in
ADD) echo $CNI_CONTAINERID > $here/address || exit 1
     nsenter --net=$CNI_NETNS sh -ec '
         ip link add eth0 mtu 1380 type veth peer name peer0
         ip addr add 192.0.2.5/24 dev eth0
         ip link set eth0 up' || exit 1
     cat $here/result ;;
DEL) [ "$(cat $here/address 2>/dev/null)" = $CNI_CONTAINERID ] && rm $here/address; exit 0 ;;
CHECK) exec nsenter --net=$CNI_NETNS ip addr show dev eth0 to 192.0.2.5 ;;
esac
"""
RESULT = {"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.5/24", "gateway": "192.0.2.1"}]}


def vmi(binding="masquerade"):
    spec = {
        "domain": {"devices": {"interfaces": [{"name": "default", binding: {}}]}},
        "networks": [{"name": "default", "pod": {}}],
    }
    document = {"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec}
    return msgspec.convert(document, VirtualMachineInstance)


@pytest.fixture
def plugin(tmp_path):
    directory = tmp_path / "plugin"
    directory.mkdir()
    (directory / "one").write_text(SCRIPT)
    (directory / "one").chmod(0o755)
    (directory / "result").write_text(json.dumps(RESULT))
    configuration = {"cniVersion": "1.0.0", "name": "pods", "type": "one"}
    (directory / "10-pods.conf").write_text(json.dumps(configuration))
    yield directory
    for attachment in Attachments(tmp_path / "network" / cni.DIRECTORY).all():
        unbind(attachment.path)


@contextlib.asynccontextmanager
async def running(tmp_path, plugin, living=()):
    """The networks of a manager."""
    networks = CniNetworks(
        tmp_path / "network", CniSettings(configurations=plugin, plugins=[plugin])
    )
    await networks.prepare(living)
    task = asyncio.ensure_future(networks.run())
    try:
        yield networks
    finally:
        task.cancel()
        await asyncio.wait({task})


async def attached(networks, binding="masquerade"):
    addresses = await networks.allocate("u", POD, vmi(binding), [])
    assert addresses == ("192.0.2.5",)
    return await networks.attach("u", vmi(binding), addresses, held=False)


def run(*command):
    subprocess.run(command, check=True)


async def until(condition):
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.02)


def commands(plugin):
    return [line.split()[0] for line in (plugin / "log").read_text().splitlines()]


def is_clean(tmp_path, plugin):
    """Return whether nothing is left of pods: attachments, namespaces, the plugin's address."""
    store = Attachments(tmp_path / "network" / cni.DIRECTORY)
    log = plugin / "log"
    containers = {line.split()[1] for line in log.read_text().splitlines()} if log.exists() else ()
    paths = [NAMESPACES / f"corral-{each}" for each in containers]
    return not (store.all() or (plugin / "address").exists() or any(map(Path.exists, paths)))


def links():
    with netlink.opened() as link:
        return {
            name: (each.mtu, {str(one) for one in link.addresses(name)})
            for name, each in link.links().items()
        }


async def test_a_guest_is_masqueraded_behind_the_plugins_interface(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        network = await attached(networks)
        assert list(network.taps) == ["default"]
        found = await network.call(links)
        assert found["eth0"] == (1380, {"192.0.2.5/24"})
        assert found["k6t-eth0"] == (1380, {"10.0.2.1/24"})
        assert found["tap0"][0] == 1380
        networks.detach("u")
        await until(lambda: is_clean(tmp_path, plugin))
    assert commands(plugin) == ["ADD", "DEL"]


async def test_a_bridged_guest_takes_the_address_over(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        network = await attached(networks, "bridge")
        found = await network.call(links)
        assert found["eth0"] == (1380, set())
        assert found["k6t-eth0"] == (1380, set())
        lease = network.responder._link.lease
        assert (str(lease.address), str(lease.gateway)) == ("192.0.2.5/24", "192.0.2.1")
        networks.detach("u")
        await until(lambda: is_clean(tmp_path, plugin))


async def test_a_bridged_guest_needs_a_gateway(tmp_path, plugin):
    (plugin / "result").write_text(json.dumps({"ips": [{"address": "192.0.2.5/24"}]}))
    async with running(tmp_path, plugin) as networks:
        with pytest.raises(NetworkError, match="binding bridge, for which the CNI plugins name no"):
            await attached(networks, "bridge")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("fail-ADD", "try later"),
        ("nonsense", "its output is no CNI result"),
        ("no address", "have given the pod no address"),
        ("no plugin", "failed to find plugin"),
        ("no configuration", "no CNI configuration"),
    ],
)
async def test_a_pod_that_cannot_be_added_leaves_nothing(tmp_path, plugin, fault, message):
    if fault == "no plugin":
        (plugin / "one").rename(plugin / "another")
    elif fault == "no configuration":
        (plugin / "10-pods.conf").unlink()
    elif fault == "fail-ADD":
        (plugin / fault).touch()
    else:
        (plugin / "result").write_text("nonsense" if fault == "nonsense" else "{}")
    async with running(tmp_path, plugin) as networks:
        with pytest.raises(NetworkError, match=message):
            await attached(networks)
        if fault == "no plugin":
            await until(networks.problems)
            (plugin / "another").rename(plugin / "one")
            networks._queue.add(networks._attachments.all()[0].container)  # not in 10 s, but now
        await until(lambda: is_clean(tmp_path, plugin))
        assert not networks.problems()


async def test_a_failed_release_is_reported_and_retried(tmp_path, plugin, monkeypatch):
    monkeypatch.setattr(cni, "RETRY_SECONDS", 0.1)
    (plugin / "fail-DEL").touch()
    async with running(tmp_path, plugin) as networks:
        await attached(networks)
        networks.detach("u")
        await until(networks.problems)
        assert networks.problems() == [
            'not released: pod default/virt-launcher-web: plugin type="one" failed (del): try later'
        ]
        (plugin / "fail-DEL").unlink()
        await until(lambda: is_clean(tmp_path, plugin) and not networks.problems())


async def test_what_a_killed_manager_was_adding_is_released(tmp_path, plugin):
    (plugin / "hang-ADD").touch()
    async with running(tmp_path, plugin) as networks:
        adding = asyncio.ensure_future(attached(networks))
        await until((plugin / "hangs").exists)
        (plugin / "address").write_text(networks._attachments.all()[0].container)
        # as the disk is when it is killed now
        shutil.copytree(tmp_path / "network", tmp_path / "killed" / "network")
        adding.cancel()
        await asyncio.wait({adding})
    (plugin / "hang-ADD").unlink()
    (plugin / "address").write_text(Attachments(tmp_path / "killed/network/cni").all()[0].container)
    async with running(tmp_path / "killed", plugin, living={"u"}) as networks:
        await until(lambda: is_clean(tmp_path / "killed", plugin))
        await attached(networks)
        networks.detach("u")
        await until(lambda: is_clean(tmp_path / "killed", plugin))


async def test_a_machine_that_had_not_started_is_added_anew(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        await attached(networks)
    async with running(tmp_path, plugin, living={"u"}) as networks:
        await attached(networks)
        await until(lambda: commands(plugin).count("DEL") == 1)
        assert len(networks._attachments.all()) == 1
        networks.detach("u")
        await until(lambda: is_clean(tmp_path, plugin))


@contextlib.contextmanager
def process_in(path):
    """A process in a pod's namespace, as QEMU is: once it prints a line it has entered that."""
    command = ["nsenter", f"--net={path}", "sh", "-c", "echo; exec sleep 1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_running_machine_is_adopted_and_checked(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        await attached(networks)
        path = networks._attachments.live("u").path
    with process_in(path) as pid:
        # as after a restart in another mount namespace
        run("umount", "--lazy", str(path))
        async with running(tmp_path, plugin, living={"u"}) as networks:
            network = await networks.adopt("u", vmi(), (), pid, held=False)
            assert (await network.call(links))["eth0"][1] == {"192.0.2.5/24"}
            assert commands(plugin) == ["ADD", "CHECK"]
            networks.detach("u")
            await until(lambda: is_clean(tmp_path, plugin))
    # the namespace was there again, for DEL
    assert (plugin / "log").read_text().splitlines()[-1].endswith(str(path))


async def test_an_adopted_machine_that_lost_its_interface_is_reported(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        await attached(networks)
        path = networks._attachments.live("u").path
        with process_in(path) as pid:
            networks.close()
            (plugin / "fail-CHECK").touch()
            with pytest.raises(NetworkError, match=r"failed \(check\): try later"):
                await networks.adopt("u", vmi(), (), pid, held=False)
            networks.close()
            run("nsenter", f"--net={path}", "ip", "link", "del", "eth0")
            with pytest.raises(NetworkError, match="interface eth0 is missing"):
                await networks.adopt("u", vmi(), (), pid, held=False)
        networks.detach("u")
        await until(lambda: is_clean(tmp_path, plugin))


async def test_a_machine_of_another_backend_is_reported(tmp_path, plugin):
    async with running(tmp_path, plugin, living={"u"}) as networks:
        with pytest.raises(NetworkError, match="another --network-backend than cni"):
            await networks.adopt("u", vmi(), ("10.244.0.2",), os.getpid(), held=False)


async def test_machines_do_not_migrate(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        with pytest.raises(NetworkError, match="do not migrate"):
            await networks.attach("u", vmi(), ("192.0.2.5",), held=True)


async def test_attachments_are_released_without_a_manager(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        await attached(networks)
    network = tmp_path / "network"
    with pytest.raises(NetworkError, match="machines run on the network of CNI"):
        cni.require_unused(network, {"u"})
    cni.require_unused(network, {"other"})
    (plugin / "fail-DEL").touch()
    with pytest.raises(NetworkError, match=r"have not released .*try later"):
        await cni.remove(network)
    (plugin / "fail-DEL").unlink()
    await cni.remove(network)
    assert is_clean(tmp_path, plugin)


async def test_the_network_is_named_with_its_plugins(tmp_path, plugin):
    async with running(tmp_path, plugin) as networks:
        facts = networks.facts()
        assert facts["network"].startswith(f"CNI pods ({plugin}/10-pods.conf: one); between hosts")
        assert facts["reason"] == ""
        (plugin / "10-pods.conf").write_text("{}")
        assert "10-pods.conf is invalid: type" in networks.facts()["reason"]
