"""VirtualMachineCheckpoints of a node: makes them, reports their status, and removes their files.

The node of the source makes the checkpoint.  Its files are removed when the object is deleted;
forks that run keep the memory that they map, and the copies of the disks are their own.
"""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from corral.api.conditions import set_condition
from corral.api.errors import NotFound
from corral.api.kinds.corral.checkpoint import FAILED, READY, VirtualMachineCheckpoint
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.client.client import Client
from corral.node.agent.machines import Machines
from corral.node.hypervisor import Hypervisor, StuckError
from corral.node.machine.memory.checkpoint import CheckpointError
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.workqueue import WorkQueue

DIRECTORY: Final = "checkpoints"
"""The subdirectory of a node's directory with a directory for each checkpoint, named by its uid."""
_SWEEP: Final = Key("", "")
"""The key by which the files of deleted checkpoints are removed."""
_WORKERS: Final = 2
_RETRY_SECONDS: Final = 2.0


class NodeCheckpoints:
    """Finds the files of a node's checkpoints by name."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._client = client
        self.directory = directory / DIRECTORY

    async def find(self, key: Key) -> CheckpointFiles:
        """Return the files of a checkpoint, which may be absent here.  Raises ApiError."""
        found = await self._client.get(VirtualMachineCheckpoint, key.name, key.namespace)
        return self.of(found.metadata.uid)

    def of(self, uid: str) -> CheckpointFiles:
        """Return the files of the checkpoint of a uid."""
        return CheckpointFiles(self.directory / uid)


class CheckpointSync:
    """Syncs the checkpoints whose source runs on this node; the keys are theirs."""

    def __init__(
        self,
        context: ControllerContext,
        node: str,
        checkpoints: NodeCheckpoints,
        machines: Machines,
        hypervisor: Hypervisor,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._node = node
        self._files = checkpoints
        self._machines = machines
        self._hypervisor = hypervisor
        self._queue: WorkQueue[Key] = WorkQueue()
        self._checkpoints = context.informers.of(VirtualMachineCheckpoint)
        self._instances = context.informers.of(VirtualMachineInstance)
        self._checkpoints.index(_source_of)
        self._instances.index(_origin_of)
        self._checkpoints.handle(self._on_checkpoint)
        self._checkpoints.handle_deleted(lambda _: self._queue.add(_SWEEP))
        self._instances.handle(self._on_instance)
        self._queue.add(_SWEEP)
        self._controller: Controller[Key] = Controller(
            f"checkpoints-{node}",
            self.sync,
            queue=self._queue,
            sources=(self._checkpoints, self._instances),
            workers=_WORKERS,
        )

    async def run(self) -> None:
        """Sync checkpoints until cancelled."""
        await self._controller.run()

    async def sync(self, key: Key) -> Result | None:
        """Make a checkpoint, or report its forks.  Raises ApiError."""
        if key == _SWEEP:
            await self._sweep()
            return None
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None or checkpoint.metadata.deletion_timestamp:
            return None
        if checkpoint.is_final:
            await self._count_forks(checkpoint)
            return None
        files = self._files.of(checkpoint.metadata.uid)
        if (made := await asyncio.to_thread(files.read)) is not None:
            await self._complete(checkpoint, made)
            return None
        source = self._instances.get(Key(key.namespace, checkpoint.spec.source.name))
        if source is not None and source.status.node_name == self._node:
            return await self._make(checkpoint, source, files)
        return await self._discard(files)

    async def _make(
        self,
        checkpoint: VirtualMachineCheckpoint,
        source: VirtualMachineInstance,
        files: CheckpointFiles,
    ) -> Result | None:
        machine = self._machines.index.machine_of_instance(source.key, source.metadata.uid)
        if machine is None or source.status.phase != "Running":
            await self._wait(checkpoint, "SourceNotRunning", "the VMI does not run yet")
            return await self._discard(files)
        await self._wait(checkpoint, "InProgress", "the checkpoint is being made")
        try:
            made = await self._machines.checkpoint(machine, source, files)
        except CheckpointError as error:
            return await self._not_made(checkpoint, files, error)
        await self._complete(checkpoint, made)
        return None

    async def _discard(self, files: CheckpointFiles) -> Result | None:
        """Remove what an attempt has left, which was interrupted; its writer may run on."""
        if not files.directory.exists():
            return None
        try:
            await self._hypervisor.end(files.writer)  # first: its lock is among the files
        except StuckError:
            return Result(_RETRY_SECONDS)
        await asyncio.to_thread(files.remove)
        return None

    async def _not_made(
        self,
        checkpoint: VirtualMachineCheckpoint,
        files: CheckpointFiles,
        error: CheckpointError,
    ) -> Result | None:
        """Report why there is no checkpoint; try again if it may be possible soon."""
        if error.is_transient:
            await self._wait(checkpoint, error.reason, error.message)
            return Result(_RETRY_SECONDS)
        if (again := await self._discard(files)) is not None:
            return again
        await self._fail(checkpoint, error)
        return None

    async def _wait(self, checkpoint: VirtualMachineCheckpoint, reason: str, message: str) -> None:
        await self._write(checkpoint, {"node": self._node}, (READY, "False", reason, message))

    async def _fail(self, checkpoint: VirtualMachineCheckpoint, error: CheckpointError) -> None:
        failed = (FAILED, "True", error.reason, error.message)
        await self._write(checkpoint, {}, (READY, "False", error.reason, ""), failed)

    async def _complete(self, checkpoint: VirtualMachineCheckpoint, made: Checkpoint) -> None:
        status = {
            "node": self._node,
            "identity": made.identity,
            "sizeBytes": made.bytes,
            "digest": f"sha256:{made.digest}",
            "forks": self._forks(checkpoint),
        }
        try:
            await self._write(checkpoint, status, (READY, "True", "Complete", ""))
        except NotFound:  # it was deleted meanwhile
            self._queue.add(_SWEEP)

    async def _count_forks(self, checkpoint: VirtualMachineCheckpoint) -> None:
        forks = self._forks(checkpoint)
        if checkpoint.status.node == self._node and checkpoint.status.forks != forks:
            await self._write(checkpoint, {"forks": forks})

    def _forks(self, checkpoint: VirtualMachineCheckpoint) -> int:
        return len(self._instances.indexed(_origin_of, str(checkpoint.key)))

    async def _write(
        self,
        checkpoint: VirtualMachineCheckpoint,
        status: Document,
        *conditions: tuple[str, str, str, str],
    ) -> None:
        """Write fields of the status, and conditions: type, status, reason and message."""
        listed = msgspec.to_builtins(checkpoint.status.conditions)
        for type_, value, reason, message in conditions:
            now = rfc3339(self._clock())
            listed = set_condition(listed, type_, value, reason=reason, message=message, now=now)
        change = {"status": status | ({"conditions": listed} if conditions else {})}
        await self._client.patch(
            VirtualMachineCheckpoint, checkpoint.key, change, subresource="status"
        )

    async def _sweep(self) -> None:
        """Remove the files of checkpoints that are deleted."""
        present = {each.metadata.uid for each in self._checkpoints.items()}
        for directory in await asyncio.to_thread(_listed, self._files.directory):
            if directory.name in present:
                continue
            files = CheckpointFiles(directory)
            try:
                await self._hypervisor.end(files.writer)
            except StuckError:
                continue  # the next sweep tries again
            await asyncio.to_thread(files.remove)

    def _on_checkpoint(
        self, _old: VirtualMachineCheckpoint | None, new: VirtualMachineCheckpoint | None
    ) -> None:
        self._queue.add(new.key if new is not None else _SWEEP)

    def _on_instance(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if (vmi := new or old) is None:
            return
        for checkpoint in self._checkpoints.indexed(_source_of, str(vmi.key)):
            if not checkpoint.is_final:
                self._queue.add(checkpoint.key)
        if (name := starts_from(vmi)) and (old is None or new is None):
            self._queue.add(Key(vmi.metadata.namespace, name))


def _address(named: VirtualMachineCheckpoint | VirtualMachineInstance, name: str) -> str:
    """Return the key of an object of the same namespace, as text; empty without a name."""
    return str(Key(named.metadata.namespace, name)) if name else ""


def _listed(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _source_of(checkpoint: VirtualMachineCheckpoint) -> tuple[str]:
    return (_address(checkpoint, checkpoint.spec.source.name),)


def _origin_of(vmi: VirtualMachineInstance) -> tuple[str]:
    return (_address(vmi, starts_from(vmi)),)
