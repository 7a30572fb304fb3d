"""Ends the machines of a host that no manager looks after: ``corral down``.

Each is ended as its manager would end it, and what became of it is put on record, so the next
manager tells the API.  Beside the record its logs stay, until the next manager removes the machine.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from corral.aio import Background
from corral.node.hypervisor import Drive, Hypervisor, StuckError
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import Boots
from corral.node.machine.lifecycle import Machine
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records

_KILLING_SECONDS = 60.0
"""So long one may take to be found, and to end when its guest has had its time."""


class _Silence:
    """Nobody is there to be told."""

    def changed(self) -> None: ...

    def of_instance(self, event_type: str, reason: str, message: str) -> None: ...

    def of_pod(self, event_type: str, reason: str, message: str) -> None: ...


async def end_machines(
    node: Path,
    hypervisor: Hypervisor,
    *,
    seconds: float,
    ended: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Shut the guests of a node's directory down, within so many seconds; then end them.

    ``ended`` is told the name of each instance whose machine has ended.  Raises StuckError once no
    other is left but those that do not end.
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
            f"killed, and not gone: {', '.join(stuck)}: the kernel holds their QEMU, perhaps for a"
            " disk that does not answer"
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
    """End one machine; answers the name of its instance if that takes longer than it should."""
    machine = Machine(
        record,
        directory,
        hypervisor=hypervisor,
        networking=Networking(None),
        boots=Boots(hypervisor.boots_at_once),
        voice=_Silence(),
        steps=lambda _step: None,
        beside=_unasked,
        limits=limits,
    )
    machine.stop(seconds, in_order=True)
    try:
        async with asyncio.timeout(seconds + _KILLING_SECONDS):
            await machine.run(None, _nothing)
    except TimeoutError:
        return record.instance
    if machine.record.stage is records.Stage.ENDED:
        await asyncio.to_thread(records.strip, directory)
    ended(record.instance)
    return ""


def _unasked(_machine: Machine, _tasks: Background) -> None:
    """Whether a machine that is to end is ready does not matter any more."""


async def _nothing() -> Mapping[str, Drive]:
    """A machine that is to end needs no drives."""
    return {}
