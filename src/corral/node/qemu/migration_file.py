"""A guest's memory in a file: QEMU's migration, to and from a descriptor that it is sent.

The stopped guest's pages are written once, zero pages as a few bytes each.  Events report the
result.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from corral.node.hypervisor import MemoryMisfitError
from corral.node.qemu.cdrom import Trays
from corral.node.qemu.devices.memory import RAM
from corral.node.qemu.devices.plugs import TRAY
from corral.node.qemu.monitor import Event, Monitor, MonitorError

INCOMING = ("-incoming", "defer")
"""Arguments of a QEMU that waits for a saved memory."""
IN_FILE = f"memory-backend={RAM}"
"""Property of a machine whose memory is in a file, which its guest cannot know."""
COMPLETED = "completed"
ENDS = frozenset({COMPLETED, "failed", "cancelled"})
ACTIVE = frozenset({"setup", "active", "device", "cancelling", "pre-switchover"})
_STOPPED = frozenset({"paused", "io-error"})
_NAME = "memory"  # of the descriptor on its way to QEMU
_FINALIZED_SECONDS = 0.001
UNBOUNDED = 1 << 40  # bytes a second; QEMU limits migrations for the network's sake by default

# Options of the host's side, and those that only firmware reads when a guest boots: they may differ
# for a guest that resumes.
_INVISIBLE = frozenset(
    {
        "-name",
        "-uuid",
        "-smbios",
        "-display",
        "-sandbox",
        "-add-fd",
        "-blockdev",
        "-netdev",
        "-chardev",
        "-mon",
        "-vnc",
    }
)
_ID = re.compile(r'-device .*?(?:"id":"|[, ]id=)([\w.-]+)')
_SWITCHES = frozenset({"-S", "-nodefaults", "-no-user-config"})


async def stop(monitor: Monitor) -> None:
    """Stop a guest that is to be saved.  Raises MonitorError if it has ended."""
    await monitor.execute("stop")
    if await _state(monitor) == "postmigrate":  # saved before, and QEMU does so only once
        await monitor.execute("cont")
        await monitor.execute("stop")
    if (state := await _state(monitor)) not in _STOPPED:
        raise MonitorError(f"the guest is in state {state}")


async def _state(monitor: Monitor) -> str:
    state: str = (await monitor.execute("query-status"))["status"]
    return state


async def save(monitor: Monitor, descriptor: int, ends: asyncio.Queue[str]) -> None:
    """Write a stopped guest's memory; ``ends`` gets the result.  Raises MonitorError."""
    await cancel(monitor, ends)
    await set_capabilities(monitor)
    await monitor.execute("migrate-set-parameters", {"max-bandwidth": UNBOUNDED})
    await monitor.lend(descriptor, "getfd", {"fdname": _NAME})
    await monitor.execute("migrate", {"uri": f"fd:{_NAME}"})
    if await ends.get() != COMPLETED:
        status = await monitor.execute("query-migrate")
        raise MonitorError(f"its memory cannot be written: {status.get('error-desc', 'cancelled')}")


async def cancel(monitor: Monitor, ends: asyncio.Queue[str]) -> None:
    """Cancel a save, also one that an earlier manager has begun.  Raises MonitorError."""
    if (await monitor.execute("query-migrate")).get("status") in ACTIVE:
        await monitor.execute("migrate_cancel")
        await ends.get()
    while not ends.empty():
        ends.get_nowait()
    # QEMU reports the end some instructions before the guest may run again, and no event then.
    while await _state(monitor) == "finish-migrate":  # noqa: ASYNC110
        await asyncio.sleep(_FINALIZED_SECONDS)


async def load(
    monitor: Monitor,
    file: Path,
    shape: Sequence[str],
    saved: Sequence[str],
) -> None:
    """Read a memory that was saved from a machine of the shape ``saved``.

    Raises MemoryMisfitError, after which this QEMU is unusable, and MonitorError.
    """
    if why := _difference(saved, shape):
        raise MemoryMisfitError(why)
    await set_capabilities(monitor)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise MemoryMisfitError(f"its memory cannot be read: {error.strerror}") from error
    try:
        await monitor.lend(descriptor, "getfd", {"fdname": _NAME})
    finally:
        os.close(descriptor)
    if not await read_incoming(monitor, _NAME):
        raise MemoryMisfitError("QEMU refuses its memory")


async def read_incoming(monitor: Monitor, name: str) -> bool:
    """Have QEMU read a memory from a descriptor that it was lent; return whether it has all of it.

    Raises MonitorError.
    """
    await monitor.execute("migrate-incoming", {"uri": f"fd:{name}"})
    while (end := ended(event := await monitor.events.get())) is None:
        if event["event"] == "END":  # QEMU exits if it cannot load the memory
            break
    return end == COMPLETED


async def set_capabilities(
    monitor: Monitor,
    *,
    pause_before_switchover: bool = False,
    auto_converge: bool = False,
) -> None:
    """Set all capabilities of a migration, as those of an earlier one would stay.

    Raises MonitorError.
    """
    states = {
        "events": True,
        "pause-before-switchover": pause_before_switchover,
        "auto-converge": auto_converge,
    }
    listed = [{"capability": name, "state": state} for name, state in states.items()]
    await monitor.execute("migrate-set-capabilities", {"capabilities": listed})


def ended(event: Event) -> str | None:
    """Return the result of a migration that has ended; None for other events."""
    status = event.get("data", {}).get("status") if event["event"] == "MIGRATION" else None
    return status if status in ENDS else None


async def shape(monitor: Monitor, pid: int) -> tuple[str, ...]:
    """Return what another machine must have in common with a QEMU to resume its memory.

    That is what its guest sees: the machine type of its version, and its devices.  Raises
    MonitorError, also if devices were plugged in since its start: the other would lack them.
    """
    version = (await monitor.execute("query-version"))["qemu"]
    arguments = list(_of_the_guest(_arguments(pid)))
    present = await monitor.execute("qom-list", {"path": "/machine/peripheral"})
    plugged = {one["name"] for one in present if one["type"].startswith("child<")}
    named = {found[1] for one in arguments if (found := _ID.match(one)) is not None}
    if changed := sorted(plugged ^ named):
        raise MonitorError(f"the device {changed[0]} was plugged in or unplugged while it ran")
    media = await Trays(monitor).media(plugged)
    shown = (_with_medium(one, media) for one in arguments)
    return (f"QEMU {version['major']}.{version['minor']}", *shown)


def _with_medium(argument: str, media: Mapping[str, str]) -> str:
    """Return an option as QEMU would be started with now: a drive may show another medium."""
    found = _ID.match(argument)
    if found is None or not found[1].startswith(TRAY):
        return argument
    properties = msgspec.json.decode(argument.removeprefix("-device "), type=dict[str, Any])
    shown = {"drive": media[found[1]]} if found[1] in media else {}
    rest = {name: value for name, value in properties.items() if name != "drive"}
    return f"-device {msgspec.json.encode(rest | shown).decode()}"


def _arguments(pid: int) -> list[str]:
    """Return a process's arguments; it may have changed them, but only to its own harm."""
    raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    return raw.decode(errors="replace").split("\0")[1:-1]


def _of_the_guest(arguments: Sequence[str]) -> Iterator[str]:
    """Iterate over the options that are visible to the guest, with their values."""
    rest = iter(arguments)
    for option in rest:
        if option in _SWITCHES:
            continue
        value = next(rest, "")
        if option in _INVISIBLE or (option, value) == INCOMING or _is_file_of_memory(option, value):
            continue
        yield f"{option} {value.removesuffix(f',{IN_FILE}')}"


def _is_file_of_memory(option: str, value: str) -> bool:
    """Report whether an option is the file that the memory of a guest is in."""
    return option == "-object" and f'"id":"{RAM}"' in value


def _difference(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe the first difference of two shapes; empty if they are equal."""
    for was, has in zip(before, now, strict=False):
        if was != has:
            return f"it was saved with {was}, and the VMI has {has}"
    if len(before) > len(now):
        return f"it was saved with {before[len(now)]}, which the VMI does not have"
    if len(now) > len(before):
        return f"the VMI has {now[len(before)]}, which it was saved without"
    return ""
