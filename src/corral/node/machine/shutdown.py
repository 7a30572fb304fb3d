"""Ends the machines of a host without a manager: ``corral down``.

Each is ended as its manager would end it, and its outcome is recorded, so that the next manager
reports it to the API.  The record and the logs stay, until the next manager removes the machine.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from corral.aio import Background
from corral.node.hypervisor import Drive, Hypervisor, StuckError
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.lifecycle import Machine
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records

_KILLING_SECONDS = 60.0
"""Longest time until one is found, and ends after its deadline."""


class _NoEvents:
    """An event recorder without an API: the next manager reports the outcome."""

    def changed(self) -> None: ...

    def vmi_event(self, event_type: str, reason: str, message: str) -> None: ...

    def pod_event(self, event_type: str, reason: str, message: str) -> None: ...


async def end_machines(
    node: Path,
    hypervisor: Hypervisor,
    *,
    seconds: float,
    ended: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Shut the guests of a node's directory down within so many seconds; then kill them.

    ``ended`` is called with the name of each VMI whose machine has ended.  Raises StuckError once
    only machines are left that do not end.
    """
    end = partial(_end, hypervisor=hypervisor, seconds=seconds, ended=ended, limits=limits)
    async with Background() as tasks:
        waiting = [
            tasks.start(end(directory, record), name=record.instance)
            for directory, record in records.unfinished(node)
        ]
        stuck = [name for each in waiting if (name := await each)]
    if stuck:
        raise StuckError(
            f"killed, but still there: {', '.join(stuck)}: their QEMU waits in the kernel, perhaps"
            " for a disk that does not answer"
        )


async def _end(
    directory: Path,
    record: records.Record,
    *,
    hypervisor: Hypervisor,
    seconds: float,
    ended: Callable[[str], None],
    limits: Limits | None,
) -> str:
    """End one machine; return the name of its VMI if it does not end in time, else nothing."""
    machine = Machine(
        record,
        directory,
        hypervisor=hypervisor,
        networking=Networking(None),
        boot_slots=BootSlots(hypervisor.boots_at_once),
        recorder=_NoEvents(),
        on_step=lambda _step: None,
        start_guest_tasks=_no_guest_tasks,
        limits=limits,
    )
    machine.stop(seconds, in_order=True)
    try:
        async with asyncio.timeout(seconds + _KILLING_SECONDS):
            await machine.run(None, _no_drives)
    except TimeoutError:
        return record.instance
    if machine.record.stage is records.Stage.ENDED:
        await asyncio.to_thread(records.strip, directory)
    ended(record.instance)
    return ""


def _no_guest_tasks(_machine: Machine, _tasks: Background) -> None:
    """A machine that is to end needs no probes and no hotplug."""


async def _no_drives() -> Mapping[str, Drive]:
    """A machine that is to end needs no drives."""
    return {}
