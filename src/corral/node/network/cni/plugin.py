"""Runs a CNI plugin: its request in the environment and on stdin, its answer on stdout."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.api.object import Document
from corral.node.network.netlink import NetworkError

SECONDS: Final = 120.0
"""How long a plugin may take: a kubelet's --runtime-request-timeout."""
_KILLED_SECONDS: Final = 5.0
_SHOWN_CHARACTERS: Final = 300


async def run_plugin(
    kind: str,
    command: str,
    configuration: Document,
    variables: Mapping[str, str],
    *,
    directories: Sequence[Path],
    seconds: float = SECONDS,
) -> Document | None:
    """Run a plugin for ``ADD``, ``DEL`` or ``CHECK``; return the result of ADD, if it prints one.

    variables: ``CNI_CONTAINERID`` and so on.  Raises NetworkError, also for a plugin that is
    killed since it takes too long.
    """
    path = _found(kind, directories)
    environment = {
        **os.environ,
        **variables,
        "CNI_COMMAND": command,
        "CNI_PATH": os.pathsep.join(map(str, directories)),
    }
    failed = f'plugin type="{kind}" failed ({command.lower()})'
    try:
        process = await _start(path, environment)
    except OSError as error:
        raise NetworkError(f"{failed}: {path} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(msgspec.json.encode(configuration))
    except TimeoutError:
        raise NetworkError(f"{failed}: no answer within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            await _kill(process)
    if process.returncode != 0:
        raise NetworkError(f"{failed}: {_error(output, errors, process.returncode)}")
    return _result(output, failed) if command == "ADD" else None


def _found(kind: str, directories: Sequence[Path]) -> Path:
    for each in directories:
        if (path := each / kind).is_file():
            return path
    raise NetworkError(
        f'failed to find plugin "{kind}" in path {", ".join(map(str, directories))}',
        "Install it there, as with apt-get install containernetworking-plugins, or name its "
        "directory with --cni-bin-dir.",
    )


async def _start(path: Path, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a program, also if cancelled meanwhile: asyncio may wait forever for half a start."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            path,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await _kill(await starting)
        raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a plugin with those that it runs itself, such as IPAM plugins."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # it may hang in the kernel
        async with asyncio.timeout(_KILLED_SECONDS):
            await process.communicate()


def _error(output: bytes, errors: bytes, status: int | None) -> str:
    """Return the message of a plugin that failed: an error of CNI, or whatever it printed."""
    with suppress(msgspec.MsgspecError):
        document = msgspec.json.decode(output, type=dict[str, Any])
        parts = (str(document.get(each) or "") for each in ("msg", "details"))
        if message := ": ".join(filter(None, parts)):
            return message
    return _shown(errors) or _shown(output) or f"exit status {status}, and no message"


def _result(output: bytes, failed: str) -> Document | None:
    if not output.strip():
        return None
    try:
        return msgspec.json.decode(output, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise NetworkError(f"{failed}: its output is no CNI result: {_shown(output)}") from error


def _shown(output: bytes) -> str:
    text = output.decode(errors="replace").strip().replace("\n", "; ")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
