"""The guest agent's client against agents that answer well, badly, and with malice."""

import asyncio
import json

import pytest

from corral.node.hypervisor import GuestInterface, Introduction
from corral.node.qemu import guestagent
from corral.node.qemu.guestagent import QemuAgent
from corral.node.qemu.guestreport import LONGEST_TEXT, system

ANSWERS = {
    "guest-get-osinfo": {"name": "Debian", "kernel-release": "6.1", "id": "debian", "extra": 3},
    "guest-get-host-name": {"host-name": "vm\x1b[2J"},
    "guest-network-get-interfaces": [
        {"name": "lo", "hardware-address": "00:00:00:00:00:00"},
        {
            "name": "eth0",
            "hardware-address": "02:AA:00:00:00:01",
            "ip-addresses": [
                {"ip-address": "10.0.2.15", "prefix": 24},
                {"ip-address": "fe80::1", "prefix": 64},
                {"ip-address": "<script>"},
                {"ip-address": "2001:db8::1%\x1b[31m" + "x" * 100_000},
                {"ip-address": "2001:DB8:0::2"},
            ],
        },
    ],
}


@pytest.fixture
async def agent(tmp_path):
    """Starts an agent: ``answer(request)`` gives the bytes of each answer."""
    servers = []

    async def start(answer):
        async def serve(reader, writer):
            while line := await reader.readline():
                writer.write(answer(json.loads(line)))
            writer.close()

        path = tmp_path / "agent.sock"
        servers.append(await asyncio.start_unix_server(serve, path))
        return path

    yield start
    for server in servers:
        server.close()


def honest(request, answers=ANSWERS):
    if request["execute"] == "guest-sync-delimited":
        return b"rubbish\n\xff" + line({"return": request["arguments"]["id"]})
    if request["execute"] not in answers:
        return line({"error": {"class": "CommandNotFound", "desc": "no"}})
    return line({"return": answers[request["execute"]]})


def line(answer):
    return json.dumps(answer).encode() + b"\n"


async def test_a_guest_introduces_itself(agent):
    assert await QemuAgent(await agent(honest)).introduce() == Introduction(
        os={"name": "Debian", "kernelRelease": "6.1", "id": "debian"},
        hostname="vm[2J",
        interfaces=(
            GuestInterface(
                name="eth0", mac="02:aa:00:00:00:01", addresses=("10.0.2.15", "2001:db8::2")
            ),
        ),
    )


async def test_an_agent_that_knows_little_tells_that(agent):
    path = await agent(lambda request: honest(request, {"guest-get-host-name": {"host-name": "a"}}))
    assert await QemuAgent(path).introduce() == Introduction(hostname="a")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff",
        b"\xff\n",
        b"\xff[]\n",
        b"\xffnull\n",
        b'\xff{"return": 1}\n',
        b'\xff{"return": "x"}\n',
        b"\xff" + b"[" * 100_000 + b"\n",
        b"\xff" + b"x" * (guestagent.LONGEST_ANSWER + 1),
        b"\xff\xfe\xfd\n",
    ],
)
async def test_nonsense_is_no_introduction(agent, answer, monkeypatch):
    monkeypatch.setattr(guestagent, "SECONDS", 0.3)
    assert await QemuAgent(await agent(lambda request: answer)).introduce() is None


async def test_nobody_there_is_no_introduction(tmp_path):
    assert await QemuAgent(tmp_path / "agent.sock").introduce() is None


def test_texts_of_a_guest_are_cut_and_printable():
    answer = system({"name": "a" * 10_000, "id": 5, "version": "1\n2"})
    assert answer == {"name": "a" * LONGEST_TEXT, "version": "12"}
