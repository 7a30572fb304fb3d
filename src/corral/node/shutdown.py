"""Ends the machines of a host that no manager looks after: ``corral down``.

Each is ended as its manager would end it, and what became of it is put on record, so the next
manager tells the API.  Beside the record its logs stay, until the next manager removes the machine.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from corral.aio import Background
from corral.node import record as records
from corral.node.boots import Boots
from corral.node.hypervisor import Drive, Hypervisor
from corral.node.limits.limits import Limits
from corral.node.machine import Machine
from corral.node.networking import Networking


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

    ``ended`` is told the name of each instance whose machine has ended.
    """
    end = partial(_end, hypervisor=hypervisor, seconds=seconds, ended=ended, limits=limits)
    async with Background() as tasks:
        waiting = [
            tasks.start(end(directory, record), name=record.instance)
            for directory, record in records.unfinished(node)
        ]
        for each in waiting:
            await each


async def _end(
    directory: Path,
    record: records.Record,
    *,
    hypervisor: Hypervisor,
    seconds: float,
    ended: Callable[[str], None],
    limits: Limits | None,
) -> None:
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
    await machine.run(None, _nothing)
    if machine.record.stage is records.Stage.ENDED:
        await asyncio.to_thread(records.strip, directory)
    ended(record.instance)


def _unasked(_machine: Machine, _tasks: Background) -> None:
    """Whether a machine that is to end is ready does not matter any more."""


async def _nothing() -> Mapping[str, Drive]:
    """A machine that is to end needs no drives."""
    return {}
