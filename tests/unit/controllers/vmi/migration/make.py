"""Migrations, their VMIs and their pods for tests of the plan."""

from datetime import UTC, datetime

import msgspec
from tests.unit.controllers.make import make_vmi, pod

from corral.api.kinds.kubevirt.migration import FINALIZER, VirtualMachineInstanceMigration
from corral.api.kinds.vmi.derived import MIGRATION_UID, target_pod_name
from corral.api.kinds.vmi.status import MigrationState
from corral.controllers.vmi.migration.plan import Observed

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
UID = "migration-1"
CREATED = "2026-01-01T00:09:00Z"


def migration(phase="", *, name="move", uid=UID, going=False, created=CREATED, **fields):
    """A migration of the VMI vm; ``fields`` are annotations, spec and failed_at."""
    entered = fields.pop("failed_at", "")
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid,
        "creationTimestamp": created,
        "finalizers": [FINALIZER],
        "annotations": fields.pop("annotations", {}),
        **({"deletionTimestamp": "2026-01-01T00:09:30Z"} if going else {}),
    }
    transitions = [{"phase": "Failed", "phaseTransitionTimestamp": entered}] if entered else []
    status = {"phase": phase, "phaseTransitionTimestamps": transitions}
    document = {"metadata": metadata, "spec": {"vmiName": "vm", **fields}, "status": status}
    return msgspec.convert(document, VirtualMachineInstanceMigration)


def vmi(phase="Running", *, node="one", going=False, state=None):
    """The VMI; ``state`` are fields of its migrationState, of this migration by default."""
    made = make_vmi(name="vm", phase=phase, node=node, going=going)
    if state is not None:
        fields = {"migrationUid": UID, "sourceNode": "one", "targetNode": "two", **state}
        made.status.migration_state = msgspec.convert(fields, MigrationState)
    return made


def target(of, phase="Pending", *, node="", going=False, created=CREATED, unschedulable=False):
    """The target pod of the migration."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    made = pod(
        of,
        name=target_pod_name(of, UID),
        phase=phase,
        node=node,
        running=phase == "Running",
        going=going,
        created=created,
        conditions=[condition] if unschedulable else (),
    )
    made.metadata.labels = {MIGRATION_UID: UID}
    return made


def observed(phase="", of=None, **fields):
    """What is observed of a migration in a phase; its source runs on node one."""
    machine = vmi() if of is None else of
    going = fields.pop("cancelled", False)
    annotations = fields.pop("annotations", {})
    values = {
        "migration": migration(phase, going=going, annotations=annotations),
        "vmi": machine,
        "source": pod(machine, phase="Running", node="one", running=True),
        "target": None,
        "handed_off": False,
        "taken": False,
        "blocked": False,
        "now": NOW,
    }
    return Observed(**{**values, **fields})
