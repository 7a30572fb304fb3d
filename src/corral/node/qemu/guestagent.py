"""What a guest's agent tells of its guest (the protocol of qemu-ga).

Every answer comes out of the guest, so it is not believed: it has a deadline and a largest size,
it must have the shape that was asked for, and texts are cut.
"""

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from corral.node.hypervisor import GuestInterface, Introduction
from corral.node.qemu.sockets import connect

SECONDS = 5.0
LONGEST_ANSWER = 256 * 1024
LONGEST_TEXT = 256
LONGEST_ADDRESS = 45
"""Of an IPv6 address that ends in an IPv4 one (RFC 4291)."""
MOST_INTERFACES = 64
MOST_ADDRESSES = 32

T = TypeVar("T")


class AgentError(Exception):
    """The agent does not answer, or not as it should."""


class _Address(msgspec.Struct, rename="kebab"):
    ip_address: str


class _Interface(msgspec.Struct, rename="kebab"):
    name: str
    hardware_address: str = ""
    ip_addresses: list[_Address] = []


class _HostName(msgspec.Struct, rename="kebab"):
    host_name: str


async def introduce(path: Path) -> Introduction | None:
    """Ask for operating system, host name and addresses; None where nothing answers properly.

    An agent that knows only a part of this introduces its guest by that part.
    """
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(
                sock=connect(path), limit=LONGEST_ANSWER
            )
            try:
                await _synchronise(reader, writer)
                return await _interview(reader, writer)
            finally:
                writer.close()
    except (OSError, TimeoutError, AgentError):
        return None


async def _interview(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Introduction:
    system: Mapping[str, str] = {}
    hostname = ""
    interfaces: list[_Interface] = []
    with suppress(AgentError):
        system = system_of(await _ask(reader, writer, "guest-get-osinfo", dict[str, Any]))
    with suppress(AgentError):
        hostname = (await _ask(reader, writer, "guest-get-host-name", _HostName)).host_name
    with suppress(AgentError):
        interfaces = await _ask(reader, writer, "guest-network-get-interfaces", list[_Interface])
    return Introduction(os=system, hostname=_text(hostname), interfaces=interfaces_of(interfaces))


async def _synchronise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Skip what an earlier client has left unread: everything up to the byte 0xFF."""
    token = secrets.randbelow(1 << 31)
    _send(writer, "guest-sync-delimited", {"id": token})
    try:
        await reader.readuntil(b"\xff")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise AgentError("no synchronisation") from error
    if _answer(await _line(reader), int) != token:
        raise AgentError("out of step")


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: str, form: type[T]
) -> T:
    _send(writer, command, None)
    return _answer(await _line(reader), form)


def _send(writer: asyncio.StreamWriter, command: str, arguments: Mapping[str, Any] | None) -> None:
    request: dict[str, Any] = {"execute": command}
    if arguments is not None:
        request["arguments"] = arguments
    writer.write(msgspec.json.encode(request) + b"\n")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise AgentError("no whole answer") from error


def _answer(line: bytes, form: type[T]) -> T:
    try:
        answer = msgspec.json.decode(line)
        return msgspec.convert(answer["return"], form)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        raise AgentError(f"not the answer that was asked for: {error}") from error


def system_of(answer: Mapping[str, Any]) -> Mapping[str, str]:
    """guest-get-osinfo as KubeVirt's guestOSInfo."""
    names = {
        "name": "name",
        "kernelRelease": "kernel-release",
        "version": "version",
        "prettyName": "pretty-name",
        "versionId": "version-id",
        "kernelVersion": "kernel-version",
        "machine": "machine",
        "id": "id",
    }
    known = {ours: _text(answer.get(theirs)) for ours, theirs in names.items()}
    return {name: value for name, value in known.items() if value}


def interfaces_of(answer: list[_Interface]) -> tuple[GuestInterface, ...]:
    """The guest's interfaces but its loopback, with the addresses that are addresses."""
    return tuple(
        GuestInterface(
            name=_text(one.name),
            mac=_text(one.hardware_address).lower(),
            addresses=tuple(
                address
                for told in one.ip_addresses[:MOST_ADDRESSES]
                if (address := _address(told.ip_address))
            ),
        )
        for one in answer[:MOST_INTERFACES]
        if one.name != "lo"
    )


def _address(text: str) -> str:
    """An address in its usual spelling; empty for what is none, or is good on its own link only.

    The parser takes any text at all for the scope behind a ``%``.
    """
    if len(text) > LONGEST_ADDRESS or "%" in text:
        return ""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    return "" if address.is_link_local else str(address)


def _text(value: object) -> str:
    """A text of the guest, printable and short enough to be shown."""
    if not isinstance(value, str):
        return ""
    return "".join(character for character in value[:LONGEST_TEXT] if character.isprintable())
