"""Migrations that are refused because of their VMI, as KubeVirt's MigrationCreateAdmitter does."""

from typing import Final, NoReturn

from corral.api.conditions import get_condition
from corral.api.errors import BadRequest
from corral.api.kind import at
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.migration import FINAL, SELECTOR_LABEL
from corral.api.kinds.kubevirt.migration_kinds import MIGRATION
from corral.api.kinds.vmi import live_migration
from corral.api.kinds.vmi.vmi import FINAL_PHASES
from corral.api.object import Document, Key
from corral.server.request.call import Call, Guard, storage
from corral.store import Objects

_VMI: Final = storage(VIRTUAL_MACHINE_INSTANCE)
_MIGRATIONS: Final = storage(MIGRATION)


class Migrations:
    """The admission plugin of migrations."""

    def __init__(self, store: Objects) -> None:
        self._store = store

    def guards(self) -> dict[str, Guard]:
        """Return the guard, by the resource name of the stored kind."""
        return {_MIGRATIONS: self._admit}

    def _admit(self, call: Call, document: Document, old: Document | None) -> None:
        """Check the VMI of a new migration.  Raises BadRequest."""
        if old is not None:
            return
        name = document["spec"]["vmiName"]
        record = self._store.latest(_VMI, Key(call.namespace, name))
        if record is None:
            _refuse(f'the VMI "{call.namespace}/{name}" does not exist')
        vmi = record.document()
        if at(vmi, "status", "phase") in FINAL_PHASES:
            _refuse("Cannot migrate VMI in finalized state.")
        condition = get_condition(at(vmi, "status", "conditions"), live_migration.CONDITION)
        if condition is not None and condition.get("status") == "False":
            reason, message = condition.get("reason", ""), condition.get("message", "")
            _refuse(f"Cannot migrate VMI, Reason: {reason}, Message: {message}")
        for other in self._store.latest_all(_MIGRATIONS, call.namespace).values():
            # By the label, as KubeVirt: a namespace may have thousands that are over.
            if other.labels.get(SELECTOR_LABEL) == name:
                _require_final(other.document(), name)


def _require_final(migration: Document, name: str) -> None:
    """Check that a stored migration of a VMI is over.  Raises BadRequest."""
    if at(migration, "status", "phase") in FINAL:
        return
    uid = migration["metadata"]["uid"]
    _refuse(
        f"in-flight migration detected. Active migration job ({uid}) is currently already in "
        f"progress for VMI {name}."
    )


def _refuse(why: str) -> NoReturn:
    assert MIGRATION.webhook is not None
    raise BadRequest(f'admission webhook "{MIGRATION.webhook.create}" denied the request: {why}')
