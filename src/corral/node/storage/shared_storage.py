"""A shared directory as one host has it: its volumes, their leases, and whether it is in order."""

import asyncio
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Final

from corral.aio import own_thread
from corral.api.kinds.storage.common import SHARED_LABEL
from corral.client.client import Client
from corral.failures import describe
from corral.node.health import Health, NodeCondition
from corral.node.storage import shared_directory
from corral.node.storage.error import StorageError
from corral.node.storage.host_heartbeats import INTERVAL_SECONDS, HostHeartbeats
from corral.node.storage.lease_files import LeaseFiles
from corral.node.storage.shared_leases import SharedLeases
from corral.node.storage.storage import Storage

HUNG_SECONDS: Final = 20.0
"""Time of a heartbeat after which the directory counts as lost."""
_FAULT: Final = "SharedStorageFault"


class SharedStorage:
    """The shared directory of a cluster on a host.

    cluster: the hash of the cluster's authority; host: the id of this host's own storage.
    machines: the uids of this host's machines that run; left: of those that have left their leases
    to the source of a migration.
    publish: writes the Nodes of this host, as the condition has changed.
    retry: lets machines that wait for a disk try again.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        *,
        host: str,
        node: str,
        client: Client,
        machines: Container[str],
        left: Container[str] = (),
        publish: Callable[[], None],
        retry: Callable[[], None] = lambda: None,
    ) -> None:
        self.node = node
        self._directory = directory
        self._cluster = cluster
        self._retry = retry
        self._heartbeats = HostHeartbeats(directory, host, node)
        files = LeaseFiles(directory)
        self.leases = SharedLeases(files, self._heartbeats, client, host)
        self.storage = Storage(directory, leases=self.leases)
        self.id = self.storage.id
        self.running = self.leases.recover(machines, left)
        """The handles of the leases of machines that run, by uid: of an earlier process."""
        self._health = Health("shared storage", publish)

    def labels(self) -> Mapping[str, str | None]:
        """Return the label of a Node, by which the scheduler knows that it has the directory."""
        return {SHARED_LABEL: None if self._health.problem else self.id}

    def condition(self) -> NodeCondition:
        """Return the condition SharedStorage of a Node."""
        if self._health.problem:
            return NodeCondition(active=False, reason=_FAULT, message=self._health.problem)
        words = f"has the shared directory {self._directory}"
        return NodeCondition(active=True, reason="SharedStorageMounted", message=words)

    async def run(self) -> None:
        """Write heartbeats until cancelled, and check that the directory stays in order."""
        while True:
            beat = own_thread(self._beat)
            done, _ = await asyncio.wait({beat}, timeout=HUNG_SECONDS)
            if not done:
                self._health.report(f"does not reach {self._directory}: it does not answer")
                await asyncio.wait({beat})
            self._health.report(beat.result())
            await asyncio.sleep(INTERVAL_SECONDS)

    def _beat(self) -> str:
        """Write and read heartbeats; return what is wrong, if anything."""
        try:
            shared_directory.identify(self._directory, self._cluster)
            self._heartbeats.beat()
            turned_silent = self._heartbeats.observe()
            self.leases.retry()
        except StorageError as error:
            return f"cannot use the shared directory: {error}"
        except OSError as error:
            return f"cannot use the shared directory {self._directory}: {describe(error)}"
        if turned_silent:
            self.leases.call_soon(self._retry)
        return ""
