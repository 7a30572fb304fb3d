"""Controller of live migrations: target pods, phases, limits, and the VMI's migrationState."""

from corral.controllers.vmi.migration.migration_controller import controller

__all__ = ["controller"]
