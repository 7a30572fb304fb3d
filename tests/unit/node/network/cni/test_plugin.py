"""Plugins as programs: what they read, and whatever they do wrong."""

import asyncio
import json
import os

import pytest
from tests.unit.node.host.test_command import require_gone

from corral.node.network.cni.plugin import run_plugin
from corral.node.network.netlink import NetworkError


@pytest.fixture
def plugin(tmp_path):
    """Writes a plugin, and runs it."""

    def write(script, mode=0o755):
        path = tmp_path / "fake"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)

        async def run(command="ADD", **options):
            return await run_plugin(
                "fake",
                command,
                {"name": "pods"},
                {"CNI_IFNAME": "eth0"},
                directories=[tmp_path / "empty", tmp_path],
                **options,
            )

        return run

    return write


async def test_a_plugin_reads_its_request_and_answers_a_result(plugin, tmp_path):
    run = plugin(
        f'cat > {tmp_path}/stdin; echo "$CNI_COMMAND $CNI_IFNAME $CNI_PATH $PATH" > {tmp_path}/env;'
        ' echo \'{"cniVersion": "1.0.0"}\''
    )
    assert await run() == {"cniVersion": "1.0.0"}
    assert json.loads((tmp_path / "stdin").read_text()) == {"name": "pods"}
    directories = f"{tmp_path}/empty:{tmp_path}"
    assert (tmp_path / "env").read_text() == f"ADD eth0 {directories} {os.environ['PATH']}\n"


async def test_a_plugin_may_answer_nothing(plugin):
    assert await plugin("cat > /dev/null")("ADD") is None


async def test_only_add_has_a_result(plugin):
    assert await plugin("echo what it has found")("CHECK") is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            """echo '{"code": 7, "msg": "no address is free", "details": "in pods"}'; exit 1""",
            "no address is free: in pods",
        ),
        ("echo cannot >&2; exit 3", "cannot"),
        ("echo nonsense; exit 3", "nonsense"),
        ("exit 3", "exit status 3, and no message"),
        ("echo nonsense", "its output is no CNI result: nonsense"),
        ("echo []", "its output is no CNI result"),
        ("kill -9 $$", "exit status -9"),
    ],
)
async def test_a_failure_is_reported_in_a_kubelets_words(plugin, script, message):
    with pytest.raises(NetworkError) as raised:
        await plugin(script)()
    assert str(raised.value).startswith('plugin type="fake" failed (add): ' + message)


async def test_a_long_output_is_cut(plugin):
    with pytest.raises(NetworkError) as raised:
        await plugin("head -c 100000 /dev/zero | tr '\\0' x; exit 1")()
    assert len(str(raised.value)) < 400


async def test_a_hanging_plugin_is_killed_with_its_children(plugin, tmp_path):
    new, child = tmp_path / "new", tmp_path / "child"
    run = plugin(f"sleep 1000 & echo $! > {new}; mv {new} {child}; wait")
    seconds = 0.25
    async with asyncio.timeout(60):
        while not child.exists():  # a busy host takes its time until the child is there
            seconds *= 2
            with pytest.raises(NetworkError, match=f"no answer within {seconds:g} s"):
                await run(seconds=seconds)
    require_gone(int(child.read_text()))


async def test_a_plugin_ends_with_the_machine_that_waits_for_it(plugin, tmp_path):
    run = plugin(
        f"mkfifo {tmp_path}/up; sleep 1000 & echo $! > {tmp_path}/child; : > {tmp_path}/up; wait"
    )
    task = asyncio.ensure_future(run())
    while not (tmp_path / "up").exists():
        await asyncio.sleep(0.01)
    await asyncio.to_thread((tmp_path / "up").read_bytes)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    require_gone(int((tmp_path / "child").read_text()))


async def test_a_missing_plugin_is_reported_with_the_directories(plugin, tmp_path):
    with pytest.raises(NetworkError, match=r'failed to find plugin "fake" in path') as raised:
        await run_plugin("fake", "ADD", {}, {}, directories=[tmp_path])
    assert str(tmp_path) in raised.value.message
    assert "--cni-bin-dir" in raised.value.hint


async def test_a_file_that_is_no_program_is_reported(plugin):
    with pytest.raises(NetworkError, match="fake cannot be run: Permission denied"):
        await plugin("", mode=0o644)()
