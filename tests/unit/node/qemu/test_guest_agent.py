"""The guest agent's client against agents that answer well, badly, and with malice."""

import asyncio
import json
import tracemalloc

import pytest

from corral.node.hypervisor import Finished, GuestError, GuestInfo, GuestInterface
from corral.node.qemu import guest_agent
from corral.node.qemu.guest_agent import QemuAgent
from corral.node.qemu.guest_agent_info import LONGEST_TEXT, MOST_ITEMS, system

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
def clients(monkeypatch):
    """The clients that a test makes."""
    made = []
    begin = QemuAgent.__init__

    def begin_and_note(self, path):
        begin(self, path)
        made.append(self)

    monkeypatch.setattr(QemuAgent, "__init__", begin_and_note)
    yield made
    for each in made:
        each.close()


@pytest.fixture
async def agent(tmp_path, clients):
    """Starts an agent: ``answer(request)`` gives the bytes of each answer."""
    servers, serving = [], []

    async def start(answer):
        async def serve(reader, writer):
            serving.append(asyncio.current_task())
            while line := await reader.readline():
                writer.write(answer(json.loads(line)))
            writer.close()
            await writer.wait_closed()

        path = tmp_path / "agent.sock"
        servers.append(await asyncio.start_unix_server(serve, path))
        return path

    yield start
    for each in clients:
        each.close()
    await asyncio.gather(*serving, return_exceptions=True)
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


async def test_guest_info_is_queried(agent):
    assert await QemuAgent(await agent(honest)).query_guest_info() == GuestInfo(
        os={"name": "Debian", "kernelRelease": "6.1", "id": "debian"},
        hostname="vm[2J",
        interfaces=(
            GuestInterface(
                name="eth0", mac="02:aa:00:00:00:01", addresses=("10.0.2.15", "2001:db8::2")
            ),
        ),
    )


async def test_an_agent_with_few_commands_gives_partial_info(agent):
    path = await agent(lambda request: honest(request, {"guest-get-host-name": {"host-name": "a"}}))
    assert await QemuAgent(path).query_guest_info() == GuestInfo(hostname="a")


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
        b"\xff" + b"x" * (guest_agent.LONGEST_ANSWER + 1),
        b"\xff\xfe\xfd\n",
    ],
)
async def test_invalid_responses_are_no_guest_info(agent, answer, monkeypatch):
    monkeypatch.setattr(guest_agent, "SECONDS", 0.3)
    assert await QemuAgent(await agent(lambda request: answer)).query_guest_info() is None


async def test_an_endless_response_is_an_error(agent):
    sent = []

    def endless(_request):
        sent.append(b"x" * (2 * guest_agent.LONGEST_OUTPUT))
        return sent[0]

    path = await agent(endless)
    with pytest.raises(GuestError, match="sends without end"):
        await QemuAgent(path).ping()


async def test_responses_to_an_earlier_client_are_skipped(agent):
    left = b"x" * (guest_agent.LONGEST_OUTPUT - 1)
    path = await agent(
        lambda request: (
            (left if request["execute"] == "guest-sync-delimited" else b"") + honest(request)
        )
    )
    assert (await QemuAgent(path).query_guest_info()).hostname == "vm[2J"


@pytest.mark.parametrize(("stale", "answers"), [(1, True), (31, True), (32, False)])
async def test_synchronisations_of_earlier_clients_are_skipped(agent, stale, answers):
    def late(request):
        answer = honest(request)
        earlier = b'\xff{"return": -1}\n' * stale
        return earlier + answer if request["execute"] == "guest-sync-delimited" else answer

    info = await QemuAgent(await agent(late)).query_guest_info()
    assert (info is not None) is answers


async def test_a_missing_agent_gives_no_guest_info(tmp_path):
    assert await QemuAgent(tmp_path / "agent.sock").query_guest_info() is None


def test_texts_of_a_guest_are_truncated_and_printable():
    answer = system({"name": "a" * 10_000, "id": 5, "version": "1\n2"})
    assert answer == {"name": "a" * LONGEST_TEXT, "version": "12"}


# -- commands of a guest agent


class ScriptedAgent:
    """An agent that records its requests, and answers from a list for each command."""

    def __init__(self, **answers):
        self.requests = []
        self.answers = {name.replace("_", "-"): list(said) for name, said in answers.items()}

    def __call__(self, request):
        if request["execute"] == "guest-sync-delimited":
            return honest(request)
        self.requests.append(request)
        said = self.answers.get(request["execute"])
        if said is None:
            return line({"error": {"class": "CommandNotFound", "desc": "not known here\x1b"}})
        return line({"return": said.pop(0)})


async def test_a_command_runs_to_its_end(agent):
    scripted = ScriptedAgent(
        guest_exec=[{"pid": 7}],
        guest_exec_status=[
            {"exited": False},
            {"exited": True, "exitcode": 3, "out-data": "b3V0", "err-data": "ZXJy"},
        ],
    )
    finished = await QemuAgent(await agent(scripted)).run(["sh", "-c", "exit 3"], b"typed")
    assert finished == Finished(exit_code=3, output=b"out", errors=b"err")
    assert scripted.requests[0]["arguments"] == {
        "path": "sh",
        "arg": ["-c", "exit 3"],
        "capture-output": True,
        "input-data": "dHlwZWQ=",
    }
    assert scripted.requests[1]["arguments"] == {"pid": 7}


async def test_a_command_killed_by_a_signal_has_the_exit_code_of_a_shell(agent):
    scripted = ScriptedAgent(
        guest_exec=[{"pid": 7}], guest_exec_status=[{"exited": True, "signal": 9}]
    )
    assert (await QemuAgent(await agent(scripted)).run(["x"])).exit_code == 137


async def test_errors_of_the_agent_are_quoted(agent):
    with pytest.raises(GuestError, match=r"refuses: not known here$"):
        await QemuAgent(await agent(ScriptedAgent())).run(["x"])


@pytest.mark.parametrize(
    "status", [{"exited": "yes"}, {}, {"exited": True, "out-data": "not base64!"}, [], None]
)
async def test_invalid_output_is_an_error(agent, status):
    scripted = ScriptedAgent(guest_exec=[{"pid": 7}], guest_exec_status=[status])
    with pytest.raises(GuestError):
        await QemuAgent(await agent(scripted)).run(["x"])


async def test_guest_info_has_kubevirts_fields(agent):
    scripted = ScriptedAgent(
        guest_info=[
            {"version": "7.2", "supported_commands": [{"name": "guest-ping", "enabled": True}]}
        ],
        guest_get_timezone=[{"zone": "UTC", "offset": 0}],
        guest_get_users=[[{"user": "root", "login-time": 1.5}, {"user": "a\x1b" * 1000}]],
        guest_get_fsinfo=[
            [
                {
                    "name": "vda1",
                    "mountpoint": "/",
                    "type": "ext4",
                    "used-bytes": 5,
                    "total-bytes": 9,
                    "disk": [{"bus-type": "virtio", "serial": "s"}],
                }
            ]
        ],
        guest_fsfreeze_status=["thawed"],
    )
    document = await QemuAgent(await agent(scripted)).describe()
    users = document["userList"]
    assert users[0] == {"userName": "root", "loginTime": 1.5}
    assert users[1] == {"userName": "a" * (LONGEST_TEXT // 2)}
    del document["userList"]
    assert document == {
        "guestAgentVersion": "7.2",
        "supportedCommands": [{"name": "guest-ping", "enabled": True, "successResponse": True}],
        "timezone": "UTC, 0",
        "fsInfo": {
            "disks": [
                {
                    "diskName": "vda1",
                    "mountPoint": "/",
                    "fileSystemType": "ext4",
                    "usedBytes": 5,
                    "totalBytes": 9,
                    "disk": [{"serial": "s", "busType": "virtio"}],
                }
            ]
        },
        "fsFreezeStatus": "thawed",
    }


async def test_lists_of_a_guest_are_truncated(agent):
    scripted = ScriptedAgent(guest_get_users=[[{"user": str(number)} for number in range(1000)]])
    assert len(await QemuAgent(await agent(scripted)).users()) == MOST_ITEMS


async def test_a_frozen_guest_is_not_frozen_again(agent):
    scripted = ScriptedAgent(guest_fsfreeze_status=["frozen", "thawed"], guest_fsfreeze_freeze=[1])
    frozen = QemuAgent(await agent(scripted))
    await frozen.freeze()
    await frozen.freeze()
    commands = [request["execute"] for request in scripted.requests]
    assert commands.count("guest-fsfreeze-freeze") == 1


async def test_commands_share_one_connection(tmp_path):
    """QEMU's agent looks ten times a second for a client when there is none."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        while line := await reader.readline():
            writer.write(honest(json.loads(line), {"guest-ping": {}}))

    async with await asyncio.start_unix_server(serve, tmp_path / "agent.sock"):
        agent = QemuAgent(tmp_path / "agent.sock")
        await agent.ping()
        with pytest.raises(guest_agent.AgentRefusedError):
            await agent.users()
        await agent.ping()
        assert len(connections) == 1
        connections[0].close()
        await connections[0].wait_closed()
        await agent.ping()
        assert len(connections) == 2
        agent.close()
        connections[1].close()


async def test_commands_run_one_at_a_time(agent):
    scripted = ScriptedAgent(guest_ping=[{}] * 5)
    client = QemuAgent(await agent(scripted))
    await asyncio.gather(*(client.ping() for _ in range(5)))
    assert len(scripted.requests) == 5


async def test_garbage_before_a_response_is_skipped(agent):
    def answer(request):
        is_first = request["execute"] == "guest-sync-delimited"
        rubbish = b"x" * (3 * guest_agent.LONGEST_ANSWER) if is_first else b""
        return rubbish + honest(request, {"guest-ping": {}})

    await QemuAgent(await agent(answer)).ping()


@pytest.fixture
async def wild(tmp_path, monkeypatch, clients):
    """Starts an agent that does as it likes with its streams; answers have little time."""
    monkeypatch.setattr(guest_agent, "SECONDS", 0.5)
    tasks = []

    async def start(behave):
        async def serve(reader, writer):
            tasks.append(asyncio.current_task())
            try:
                await behave(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()  # close() would wait for a client that reads nothing

        path = tmp_path / "agent.sock"
        tasks.append(await asyncio.start_unix_server(serve, path))
        return QemuAgent(path)

    yield start
    for task in tasks:
        task.cancel() if isinstance(task, asyncio.Task) else task.close()
    serving = [task for task in tasks if isinstance(task, asyncio.Task)]
    await asyncio.gather(*serving, return_exceptions=True)
    await asyncio.sleep(0)  # a connection is closed in the loop's next round


async def never_stop(reader, writer):
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def trickle(reader, writer):
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def say_nothing(reader, writer):
    await asyncio.Event().wait()


@pytest.mark.parametrize("behave", [never_stop, trickle, say_nothing])
async def test_guest_agent_commands_time_out_together(wild, behave):
    """Nor behind others who wait for it: a hundred of them do so at once."""
    agent = await wild(behave)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(agent.ping() for _ in range(100)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {guest_agent.AgentError}


async def test_the_connection_to_an_agent_that_reads_nothing_is_closed(wild):
    gone = asyncio.Event()

    async def read_nothing(reader, writer):
        reader._transport.pause_reading()
        await asyncio.sleep(1)
        reader._transport.resume_reading()
        while await reader.read(65536):
            pass
        gone.set()

    agent = await wild(read_nothing)
    with pytest.raises(guest_agent.AgentError):
        await agent.run(["cat"], b"x" * (32 << 20))
    async with asyncio.timeout(60):
        await gone.wait()


@pytest.mark.parametrize(
    ("why", "code", "message"),
    [
        (
            "No such file or directory",
            127,
            'exec: "no\\u001bsuch": executable file not found in $PATH',
        ),
        ("Permission denied", 126, 'exec: "no\\u001bsuch": cannot be executed'),
    ],
)
async def test_a_missing_program_has_the_exit_code_of_a_shell(agent, why, code, message):
    desc = f"Guest agent command failed, error was 'Failed to execute child process ({why})'"

    def refuses(request):
        if request["execute"] == "guest-exec":
            return line({"error": {"class": "GenericError", "desc": desc}})
        return honest(request)

    finished = await QemuAgent(await agent(refuses)).run(["no\x1bsuch"])
    assert finished == Finished(exit_code=code, errors=f"{message}\n".encode())


async def test_keys_replace_earlier_ones_and_passwords_are_not_crypted(agent):
    requests = []

    def note(request):
        if request["execute"] == "guest-sync-delimited":
            return honest(request)
        requests.append(request)
        return line({"return": {}})

    talker = QemuAgent(await agent(note))
    await talker.authorize("demo", ["ssh-ed25519 A", "ssh-rsa B"])
    await talker.set_password("demo", 'gr\u00fc"n')
    keys = {"username": "demo", "keys": ["ssh-ed25519 A", "ssh-rsa B"], "reset": True}
    word = {"username": "demo", "password": "Z3LDvCJu", "crypted": False}
    assert requests == [
        {"execute": "guest-ssh-add-authorized-keys", "arguments": keys},
        {"execute": "guest-set-user-password", "arguments": word},
    ]


async def test_what_was_plugged_in_is_brought_online(agent):
    requests = []
    answers = {
        "guest-get-vcpus": [
            {"logical-id": 0, "online": True, "can-offline": False},
            {"logical-id": 1, "online": False, "can-offline": True},
        ],
        "guest-set-vcpus": 1,
        "guest-get-memory-blocks": [
            {"phys-index": 7, "online": True, "can-offline": True},
            {"phys-index": 8, "online": False, "can-offline": True},
        ],
        "guest-set-memory-blocks": [{"phys-index": 8, "response": "success"}],
    }

    def note(request):
        if request["execute"].startswith("guest-set"):
            requests.append(request)
        return honest(request, answers)

    await QemuAgent(await agent(note)).bring_online()
    assert requests == [
        {"execute": "guest-set-vcpus", "arguments": {"vcpus": [{"logical-id": 1, "online": True}]}},
        {
            "execute": "guest-set-memory-blocks",
            "arguments": {"mem-blks": [{"phys-index": 8, "online": True}]},
        },
    ]


async def test_an_agent_without_commands_for_credentials_is_reported(agent):
    talker = QemuAgent(await agent(honest))
    with pytest.raises(GuestError, match="the guest agent refuses: no"):
        await talker.authorize("demo", [])


def test_unknown_fields_of_a_response_are_ignored():
    padded = b'{"return": {"exited": false, "more": [' + b"[]," * 100_000 + b"[]]}}\n"
    tracemalloc.start()
    try:
        assert not guest_agent._answer(padded, guest_agent._Progress).exited
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(padded)


async def test_a_running_command_has_no_output_yet(agent):
    scripted = ScriptedAgent(
        guest_exec=[{"pid": 7}],
        guest_exec_status=[{"exited": False, "more": "x" * guest_agent.LONGEST_ANSWER}],
    )
    with pytest.raises(GuestError, match="too long"):
        await QemuAgent(await agent(scripted)).run(["wait"])
