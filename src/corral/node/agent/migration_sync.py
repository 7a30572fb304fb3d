"""Passes a VMI's ``status.migrationState`` on to its machine: on the source, and on the target."""

from typing import Any

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.errors import NotFound
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.kinds.vmi.migration_configuration import MAX_DOWNTIME_MS
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.quantity import amount
from corral.api.volume_binding import is_finished
from corral.client.client import Client
from corral.node.hypervisor import MigrationOptions
from corral.node.machine.lifecycle import Machine
from corral.node.machine.migration.departure import MigrationRequest
from corral.node.machine.migration.handover import TargetState
from corral.node.state.facts import NEVER_STARTED
from corral.node.state.machine_record import Stage

_FAILED = "the migration failed"


class MigrationSync:
    """Passes migrations on to the machines of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def sync(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        """Sync one machine with the migration of its VMI.  Raises ApiError."""
        state, record = vmi.status.migration_state, machine.record
        if state is None:
            return
        if record.arrival and not record.started_at:
            await self._sync_target(machine, vmi, state)
        elif record.stage is Stage.SENT:
            await self._sync_sent(machine, vmi, state)
        elif state.source_node == self._node and state.source_pod in {"", record.pod}:
            self._sync_source(machine, vmi, state)

    async def _sync_target(
        self, machine: Machine, vmi: VirtualMachineInstance, state: MigrationState
    ) -> None:
        record = machine.record
        if state.migration_uid != record.arrival:
            return
        if state.failed:
            machine.arrival.end(state.failure_reason or _FAILED)
        elif machine.arrival.awaits_addresses and state.target_pod == record.pod:
            try:
                source = await self._client.get(Pod, state.source_pod, record.namespace)
            except NotFound:
                machine.arrival.end(f"the pod {state.source_pod} is gone")
                return
            ips = (source.status and source.status.podIPs) or ()
            addresses = [each.ip for each in ips if each.ip]
            machine.arrival.arrange(vmi, addresses, state.source_node)

    def _sync_source(
        self, machine: Machine, vmi: VirtualMachineInstance, state: MigrationState
    ) -> None:
        if state.completed or vmi.is_final or not state.target_node_address:
            return
        if state.abort_requested:
            machine.departure.cancel()
        options = _options(state)
        machine.departure.request(
            MigrationRequest(uid=state.migration_uid, node=state.target_node, options=options)
        )

    async def _sync_sent(
        self, machine: Machine, vmi: VirtualMachineInstance, state: MigrationState
    ) -> None:
        """Report what the API says of the target: it may not answer any more."""
        if vmi.status.node_name != self._node:
            machine.departure.observe(TargetState.RUNNING)
            return
        try:
            pod = await self._client.get(Pod, state.target_pod, vmi.metadata.namespace)
        except NotFound:
            machine.departure.observe(TargetState.GONE)
            return
        if is_finished(pod):
            never_ran = _reason(pod) == NEVER_STARTED
            machine.departure.observe(TargetState.ABSENT if never_ran else TargetState.GONE)


def _reason(pod: Pod) -> str:
    """Return the reason with which the machine of a pod has ended; empty if there is none."""
    for each in (pod.status and pod.status.containerStatuses) or ():
        terminated = each.state and each.state.terminated
        if each.name == COMPUTE and terminated:
            return terminated.reason or ""
    return ""


def _options(state: MigrationState) -> MigrationOptions:
    """Return the settings of a migration, as the controller wrote them."""
    settings: dict[str, Any] = msgspec.to_builtins(state.migration_configuration) or {}
    return MigrationOptions(
        bandwidth=amount(settings.get("bandwidthPerMigration")).rounded_up(),
        progress_seconds=float(settings.get("progressTimeout") or 0),
        completion_seconds_per_gib=float(settings.get("completionTimeoutPerGiB") or 0),
        auto_converge=bool(settings.get("allowAutoConverge")),
        max_downtime_ms=settings.get("maxDowntimeMs") or MAX_DOWNTIME_MS,
    )
