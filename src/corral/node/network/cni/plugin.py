"""Runs a CNI plugin: its request in the environment and on stdin, its answer on stdout."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.api.object import Document
from corral.node.host.command import run
from corral.node.network.netlink import NetworkError

SECONDS: Final = 120.0
"""Timeout of a plugin: a kubelet's --runtime-request-timeout."""
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
        status, output, errors = await run(
            path,
            seconds=seconds,
            stdin=msgspec.json.encode(configuration),
            environment=environment,
        )
    except TimeoutError:
        raise NetworkError(f"{failed}: no answer within {seconds:g} s") from None
    except OSError as error:
        raise NetworkError(f"{failed}: {path} cannot be run: {error.strerror}") from error
    if status != 0:
        raise NetworkError(f"{failed}: {_error(output, errors, status)}")
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


def _error(output: bytes, errors: bytes, status: int) -> str:
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
