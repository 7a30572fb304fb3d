"""Starts a machine from a checkpoint; the manager may be killed after each step.

    copies of the checkpoint's disks are in the machine's directory
    QEMU maps the memory and has read the state of devices
    recorded: Waking       with the VMI whose identity the guest has
    the guest goes on
    recorded: Started

Until Waking is recorded the next manager begins anew.  If the checkpoint does not
fit, or is damaged, the guest boots instead.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import msgspec

from corral.aio import finished
from corral.api.errors import ApiError, BadRequest, NotFound
from corral.api.kinds.vmi import fork_state
from corral.api.kinds.vmi.forkable import obstacles, volumes_of
from corral.api.kinds.vmi.live_update import boot_memory
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.hypervisor import Guest, Memory, MemoryDamagedError, MemoryMisfitError, StartError
from corral.node.state.facts import ForkState
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles
from corral.node.volumes.source import FOLDER

_ALIGNMENT: Final = 8192
"""The size of memory that QEMU boots a guest with is rounded up to this."""


class Checkpoints(Protocol):
    """The checkpoints of a node."""

    async def find(self, key: Key) -> tuple[CheckpointFiles, Checkpoint]:
        """Return the files of a checkpoint, and its record.

        Raises ApiError, StartError while it is not complete, and MemoryMisfitError if it never is,
        or is not on this node.
        """

    def report_damage(self, files: CheckpointFiles, why: str) -> None:
        """Report that nothing can start from a checkpoint any more."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The checkpoint that a machine starts from, with its name."""

    files: CheckpointFiles
    made: Checkpoint
    name: str

    @property
    def memory(self) -> Memory:
        return Memory(file=self.files.devices, shape=self.made.shape)

    async def open_pages(self) -> int:
        """Return a descriptor of the memory, to be closed.  Raises MemoryMisfitError, OSError."""
        opened = asyncio.to_thread(self.files.open_pages, self.made)
        return await finished(opened, discard=os.close)

    def check(self, vmi: VirtualMachineInstance) -> None:
        """Raise MemoryMisfitError if the VMI cannot have the memory and the disks."""
        if why := next(obstacles(vmi.spec), ""):
            raise MemoryMisfitError(why)
        volumes = volumes_of(vmi)
        if volumes != self.made.volumes:
            theirs = ", ".join(self.made.volumes) or "none"
            why = f"its volumes are {', '.join(volumes) or 'none'}, those of the source {theirs}"
            raise MemoryMisfitError(why)
        own, size = boot_memory(vmi).rounded_up(), self.made.memory.size
        if size and -(-own // _ALIGNMENT) * _ALIGNMENT != size:
            raise MemoryMisfitError(f"its memory has {own} bytes, that of the source {size}")


class MemoryFork:
    """Starts one machine from a checkpoint, if its VMI names one."""

    def __init__(self, state: MachineState, checkpoints: Checkpoints | None) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._boots = False

    @property
    def _folder(self) -> Path:
        return self._state.directory / FOLDER

    async def find(self, vmi: VirtualMachineInstance) -> Origin | None:
        """Return the checkpoint to start from, with its disks in place; None for a boot.

        Raises StartError if that is not known at present.
        """
        name = starts_from(vmi)
        if not name or self._boots or self._checkpoints is None:
            return None
        try:
            files, made = await self._checkpoints.find(Key(vmi.metadata.namespace, name))
        except (NotFound, BadRequest):  # the latter for a name that no object has
            await self._boot(name, "there is no such checkpoint")
            return None
        except ApiError as error:
            raise StartError("CheckpointPending", f"checkpoint {name}: {error}") from error
        except MemoryMisfitError as error:
            await self._boot(name, str(error))
            return None
        origin = Origin(files, made, name)
        try:
            origin.check(vmi)
            await asyncio.to_thread(files.check, made)
            await asyncio.to_thread(files.place_disks, made, self._folder)
        except MemoryMisfitError as error:
            await self.give_up(origin, error)
            return None
        self._state.step("forked disks")
        return origin

    async def give_up(self, origin: Origin, error: MemoryMisfitError) -> None:
        """Boot instead, with disks of its own."""
        if isinstance(error, MemoryDamagedError) and self._checkpoints is not None:
            self._checkpoints.report_damage(origin.files, str(error))
        await self._boot(origin.name, describe(error))

    async def _boot(self, name: str, why: str) -> None:
        self._boots = True
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        message = f"The guest boots, as it cannot start from checkpoint {name}: {why}"
        self._state.record_fork(fork_state.FAILED, message)
        self._state.recorder.vmi_event("Warning", fork_state.FAILED, message)

    async def resume(self, origin: Origin, guest: Guest, vmi: VirtualMachineInstance) -> None:
        """Let a new guest go on.  Raises OSError, with nothing executed."""
        state = self._state
        state.write(
            msgspec.structs.replace(
                state.record,
                stage=Stage.WAKING,
                fork_of=origin.made.instance,
                fork=fork_state.PENDING,
                paused=vmi.spec.start_strategy == "Paused",
            )
        )
        state.set_facts(replace(state.facts, fork=ForkState(fork_state.PENDING)))
        state.step("loaded")
        await self.resume_interrupted(guest)

    async def resume_interrupted(self, guest: Guest) -> None:
        """Let a guest go on whose memory is loaded, also by an earlier manager."""
        state = self._state
        if not await state.resume_guest(guest, paused=state.record.paused):
            return
        with suppress(OSError):  # the next manager finds the stage Waking, and a guest that runs
            state.write(state.record.started())
        source = state.record.fork_of
        state.recorder.vmi_event("Normal", "Forked", f"The guest goes on from where {source} was.")
