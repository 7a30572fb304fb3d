"""VirtualMachineCheckpoints of a node: makes them, reports their status, and removes their files.

The node of the source makes the checkpoint.  Its files are removed when the object is deleted;
forks that run keep the memory that they map, and the copies of the disks are their own.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.api.conditions import set_condition
from corral.api.errors import ApiError, NotFound
from corral.api.kinds.corral.checkpoint import (
    DAMAGED,
    EVICTED,
    FAILED,
    READY,
    VirtualMachineCheckpoint,
)
from corral.api.kinds.corral.warm_pool import WARM_POOL_KIND
from corral.api.kinds.vmi.fork_state import forked, has_booted_instead, has_started_from
from corral.api.kinds.vmi.live_update import boot_sockets
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.client.client import Client
from corral.failures import describe
from corral.node.agent.machines import Machines
from corral.node.checkpoint_usage import CheckpointUsage
from corral.node.hypervisor import MemoryDamagedError, MemoryMisfitError, StartError
from corral.node.machine.memory.checkpoint import CheckpointError
from corral.node.metrics.checkpoint_metrics import CheckpointMetrics
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.indexes import by_source
from corral.reconcile.objects import controller_of
from corral.reconcile.workqueue import WorkQueue

OnDamage = Callable[[str], None]
DIRECTORY: Final = "checkpoints"
"""The subdirectory of a node's directory with a directory for each checkpoint, named by its uid."""
_SWEEP: Final = Key("", "")
"""The key by which the files of deleted checkpoints are removed."""
_WORKERS: Final = 2
_RETRY_SECONDS: Final = 2.0
_SWEEP_RETRY_SECONDS: Final = 60.0
_NO_RECORD: Final = "its files are missing"
_EVICTED_MESSAGE: Final = (
    "its node was short of disk space, and no VMI used it: its warm pool makes another one when "
    "there is room again"
)
_PENDING: Final = "CheckpointPending"
"""Reason of machines that wait for their checkpoint to be complete."""

log = structlog.get_logger()


class NodeCheckpoints:
    """Finds the files of a node's checkpoints by name.

    ``damage`` has what is wrong with the files of a checkpoint, by its uid; ``on_damage`` is called
    with the uid.
    """

    def __init__(self, client: Client, node: str, directory: Path) -> None:
        self.damage: dict[str, str] = {}
        self.on_damage: OnDamage = _ignore
        self.usage = CheckpointUsage()
        """What checkpoints from which VMIs can start occupy."""
        self._client = client
        self._node = node
        self.directory = directory / DIRECTORY
        self._files: dict[str, CheckpointFiles] = {}

    async def find(self, key: Key) -> tuple[CheckpointFiles, Checkpoint]:
        """Return the files of a checkpoint, and its record.

        Raises ApiError, StartError while it is not complete, and MemoryMisfitError if it never is,
        or is not on this node.
        """
        found = await self._client.get(VirtualMachineCheckpoint, key.name, key.namespace)
        if found.has(FAILED):
            why = f": {message}" if (message := _why_failed(found)) else ""
            raise MemoryMisfitError(f"the checkpoint has failed{why}")
        if not found.has(READY):
            raise StartError(_PENDING, f"checkpoint {key.name} is not complete yet")
        files = self.of(found.metadata.uid)
        made = await asyncio.to_thread(files.read)
        if made is not None:
            return files, made
        if found.status.node_name != self._node:
            where = f"{found.status.node_name} has" if found.status.node_name else "no node has"
            raise MemoryMisfitError(f"this node does not have it; {where} its files")
        self.report_damage(files, _NO_RECORD)
        raise MemoryDamagedError(_NO_RECORD)

    def report_damage(self, files: CheckpointFiles, why: str) -> None:
        """Report that nothing can start from a checkpoint any more."""
        uid = files.directory.name
        self.damage[uid] = why
        self.on_damage(uid)

    def of(self, uid: str) -> CheckpointFiles:
        """Return the files of the checkpoint of a uid."""
        return self._files.setdefault(uid, CheckpointFiles(self.directory / uid))

    def forget(self, uid: str) -> None:
        """Forget the files of a checkpoint, which are removed."""
        self.damage.pop(uid, None)
        if (files := self._files.pop(uid, None)) is not None:
            files.close()


class CheckpointSync:
    """Syncs the checkpoints whose source runs on this node; the keys are theirs.

    ``on_usage`` is called when ``NodeCheckpoints.usage`` has changed.
    """

    def __init__(
        self,
        context: ControllerContext,
        node: str,
        checkpoints: NodeCheckpoints,
        machines: Machines,
        *,
        on_usage: Callable[[], None],
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._node = node
        self._recorder = context.recorder("virt-handler", node)
        self._files = checkpoints
        self._machines = machines
        self._on_usage = on_usage
        self._shared: dict[str, int] = {}
        """Bytes of memory that forks share, by the uid of their checkpoint."""
        self._busy: set[str] = set()
        """Uids of the checkpoints whose files are being made or removed."""
        self._queue: WorkQueue[Key] = WorkQueue()
        self._checkpoints = context.informers.of(VirtualMachineCheckpoint)
        self._instances = context.informers.of(VirtualMachineInstance)
        self.metrics = CheckpointMetrics(node, lambda: self._files.usage)
        self._checkpoints.index(by_source)
        self._checkpoints.index(_uid)
        self._instances.index(_origin_of)
        self._checkpoints.handle(self._on_checkpoint)
        self._checkpoints.handle_deleted(lambda _: self._queue.add(_SWEEP))
        self._instances.handle(self._on_instance)
        checkpoints.on_damage = self._on_damage
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

    async def evict_oldest(self) -> bool:
        """Remove the oldest checkpoint that is not needed; report whether there was one.

        It is reported first, so that no VMI starts from files that go.  Raises OSError.
        """
        unneeded = evictable(self._checkpoints.items(), self._node, self._is_unused)
        for checkpoint in unneeded:
            try:
                await self._fail(checkpoint, CheckpointError(EVICTED, _EVICTED_MESSAGE))
            except ApiError as error:
                name = str(checkpoint.key)
                log.warning("a checkpoint stays on disk", checkpoint=name, error=str(error))
                continue
            self._recorder.event(checkpoint, "Warning", EVICTED, _EVICTED_MESSAGE)
            await asyncio.to_thread(self._files.of(checkpoint.metadata.uid).remove)
            return True
        return False

    def _is_unused(self, checkpoint: VirtualMachineCheckpoint) -> bool:
        """Report whether no VMI has started from a checkpoint, or is about to."""
        return all(
            map(has_booted_instead, self._instances.indexed(_origin_of, str(checkpoint.key)))
        )

    async def sync(self, key: Key) -> Result | None:
        """Make a checkpoint, or report its forks.  Raises ApiError and OSError."""
        if key == _SWEEP:
            return await self._sweep()
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None or checkpoint.metadata.deletion_timestamp:
            return None
        if checkpoint.is_final:
            self._retry_pending(checkpoint)
            await self._sync_final(checkpoint)
            return None
        made = await asyncio.to_thread(self._files.of(checkpoint.metadata.uid).read)
        if made is not None:  # by an earlier manager, which did not report it any more
            await self._complete(checkpoint, made)
            return None
        return await self._sync_unfinished(checkpoint)

    async def _sync_unfinished(self, checkpoint: VirtualMachineCheckpoint) -> Result | None:
        source = self._instances.get(checkpoint.source_key)
        begun = checkpoint.status.source_uid
        if begun and (source is None or source.metadata.uid != begun):
            if checkpoint.status.node_name == self._node:
                why = "the VMI has ended before the checkpoint was complete"
                await self._fail(checkpoint, CheckpointError("SourceNotFound", why))
            return None
        if source is None or source.status.node_name != self._node:
            return None
        return await self._make(checkpoint, source)

    async def _make(
        self, checkpoint: VirtualMachineCheckpoint, source: VirtualMachineInstance
    ) -> Result | None:
        machine = self._machines.index.machine_of_instance(source.key, source.metadata.uid)
        if machine is None or source.status.phase != "Running":
            await self._wait(checkpoint, "SourceNotRunning", "the VMI does not run yet")
            return None
        uid = checkpoint.metadata.uid
        if uid in self._busy:
            return Result(_RETRY_SECONDS)
        begun = {"sourceUID": source.metadata.uid, "bootSockets": boot_sockets(source)}
        await self._wait(checkpoint, "InProgress", "the checkpoint is being made", begun)
        self._busy.add(uid)
        files, now = self._files.of(uid), asyncio.get_running_loop().time
        began = now()
        try:
            made = await self._machines.checkpoint(machine, source, files, str(checkpoint.key))
        except CheckpointError as error:
            await asyncio.to_thread(files.remove)
            if not error.is_transient:
                await self._fail(checkpoint, error)
                return None
            await self._wait(checkpoint, error.reason, error.message)
            return Result(_RETRY_SECONDS)
        finally:
            self._busy.discard(uid)
        self.metrics.completed(now() - began, made.pause_seconds)
        await self._complete(checkpoint, made)
        return None

    def _retry_pending(self, checkpoint: VirtualMachineCheckpoint) -> None:
        """Retry the starts of VMIs that wait for a checkpoint."""
        for vmi in self._instances.indexed(_origin_of, str(checkpoint.key)):
            machine = self._machines.index.machine_of_instance(vmi.key, vmi.metadata.uid)
            trouble = machine.facts.trouble if machine is not None else None
            if machine is not None and trouble is not None and trouble.reason == _PENDING:
                machine.retry()

    async def _wait(
        self,
        checkpoint: VirtualMachineCheckpoint,
        reason: str,
        message: str,
        status: Document | None = None,
    ) -> None:
        """Report why the checkpoint is not complete yet."""
        status = {"nodeName": self._node, **(status or {})}
        await self._write(checkpoint, status, (READY, "False", reason, message))

    async def _fail(self, checkpoint: VirtualMachineCheckpoint, error: CheckpointError) -> None:
        self.metrics.failed(error.reason)
        failed = (FAILED, "True", error.reason, error.message)
        await self._write(checkpoint, {}, (READY, "False", error.reason, error.message), failed)

    async def _complete(self, checkpoint: VirtualMachineCheckpoint, made: Checkpoint) -> None:
        status = {
            "nodeName": self._node,
            "identity": made.identity,
            "creationTime": made.taken_at,
            "sizeBytes": made.bytes,
            "digest": f"sha256:{made.digest}",
            "forks": self._forks(checkpoint),
        }
        try:
            message = f"VMIs can start from it on node {self._node}"
            await self._write(checkpoint, status, (READY, "True", "Complete", message))
        except NotFound:  # it was deleted meanwhile
            self._queue.add(_SWEEP)

    def _update_usage(self) -> None:
        """Update what checkpoints occupy, whose files or forks have changed."""
        own = [each for each in self._checkpoints.items() if each.status.node_name == self._node]
        ready = [each for each in own if each.has(READY)]
        present = {each.metadata.uid for each in own}
        self._shared = {uid: size for uid, size in self._shared.items() if uid in present}
        disk = sum(each.status.size_bytes for each in ready)
        usage = CheckpointUsage(len(ready), disk, sum(self._shared.values()))
        if usage != self._files.usage:
            self._files.usage = usage
            self._on_usage()

    async def _sync_final(self, checkpoint: VirtualMachineCheckpoint) -> None:
        files = self._files.of(checkpoint.metadata.uid)
        if is_unused := self._is_unused(checkpoint):
            files.close()
        if checkpoint.status.node_name != self._node:
            return
        uid = checkpoint.metadata.uid
        if is_unused:
            self._shared.pop(uid, None)
        elif checkpoint.has(READY):
            self._shared[uid] = await asyncio.to_thread(files.memory_bytes)
        self._update_usage()
        damage = self._files.damage.get(uid)
        if damage and not checkpoint.has(FAILED):
            await self._fail(checkpoint, CheckpointError(DAMAGED, damage))
            self._recorder.event(checkpoint, "Warning", DAMAGED, _event_message(damage))
        elif checkpoint.has(FAILED):
            await asyncio.to_thread(files.remove)
            self._files.forget(uid)
        if checkpoint.status.forks != (forks := self._forks(checkpoint)):
            await self._write(checkpoint, {"forks": forks})

    def _forks(self, checkpoint: VirtualMachineCheckpoint) -> int:
        named = self._instances.indexed(_origin_of, str(checkpoint.key))
        return sum(map(has_started_from, named))

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
        status = {**status, "observedGeneration": checkpoint.metadata.generation}
        change = {"status": status | ({"conditions": listed} if conditions else {})}
        await self._client.patch(
            VirtualMachineCheckpoint, checkpoint.key, change, subresource="status"
        )

    async def _sweep(self) -> Result | None:
        """Remove the files of deleted checkpoints, and of attempts that were interrupted.

        The API server is asked about each: an object that is damaged is in no list.  Complete
        checkpoints without files are reported as damaged.  Raises ApiError.
        """
        failed, complete = False, set[str]()
        present = {each.metadata.uid: each for each in self._checkpoints.items()}
        for directory in await asyncio.to_thread(_listed, self._files.directory):
            uid = directory.name
            files = self._files.of(uid)
            made = await asyncio.to_thread(files.read)
            if made is not None:
                complete.add(uid)
            if uid in self._busy or (made is not None and uid in present):
                continue
            self._busy.add(uid)
            try:
                if made is None or await self._is_deleted(uid, made):
                    await asyncio.to_thread(files.remove)
                    self._files.forget(uid)
            except OSError as error:
                log.warning("a checkpoint stays on disk", uid=uid, error=describe(error))
                failed = True
            finally:
                self._busy.discard(uid)
        for uid, checkpoint in present.items():
            is_own = checkpoint.status.node_name == self._node and checkpoint.has(READY)
            if is_own and uid not in complete:
                self._files.report_damage(self._files.of(uid), _NO_RECORD)
        self._update_usage()
        return Result(_SWEEP_RETRY_SECONDS) if failed else None

    async def _is_deleted(self, uid: str, made: Checkpoint) -> bool:
        """Return whether the API server has no such object.  Raises ApiError."""
        namespace, _, name = made.key.partition("/")
        try:
            found = await self._client.get(VirtualMachineCheckpoint, name, namespace)
        except NotFound:
            return True
        return found.metadata.uid != uid

    def _on_checkpoint(
        self, _old: VirtualMachineCheckpoint | None, new: VirtualMachineCheckpoint | None
    ) -> None:
        self._queue.add(new.key if new is not None else _SWEEP)

    def _on_instance(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if (vmi := new or old) is None:
            return
        for checkpoint in self._checkpoints.indexed(by_source, str(vmi.key)):
            if not checkpoint.is_final:
                self._queue.add(checkpoint.key)
        name = starts_from(vmi)
        if name and (old is None or new is None or forked(old) != forked(new)):
            self._queue.add(Key(vmi.metadata.namespace, name))

    def _on_damage(self, uid: str) -> None:
        for checkpoint in self._checkpoints.indexed(_uid, uid):
            self._queue.add(checkpoint.key)


def evictable(
    checkpoints: Iterable[VirtualMachineCheckpoint],
    node: str,
    is_unused: Callable[[VirtualMachineCheckpoint], bool],
) -> list[VirtualMachineCheckpoint]:
    """Return the checkpoints on a node that may go when it is short of disk, the oldest first.

    A warm pool makes those that it controls again; one of a user's is never among them.
    """
    found = [
        each
        for each in checkpoints
        if each.status.node_name == node
        and each.has(READY)
        and not each.metadata.deletion_timestamp
        and (owner := controller_of(each)) is not None
        and owner.kind == WARM_POOL_KIND
        and is_unused(each)
    ]
    return sorted(found, key=lambda each: (each.metadata.creation_timestamp or "", each.key))


def _listed(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _ignore(_uid: str) -> None:
    pass


def _uid(checkpoint: VirtualMachineCheckpoint) -> tuple[str]:
    """Index checkpoints by uid."""
    return (checkpoint.metadata.uid,)


def _why_failed(checkpoint: VirtualMachineCheckpoint) -> str:
    return next((one.message for one in checkpoint.status.conditions if one.type == FAILED), "")


def _event_message(damage: str) -> str:
    return f"VMIs cannot start from it any more: {damage}"


def _origin_of(vmi: VirtualMachineInstance) -> tuple[str]:
    """Index VMIs by the checkpoint that they start from, empty for those that boot."""
    name = starts_from(vmi)
    return (str(Key(vmi.metadata.namespace, name)) if name else "",)
