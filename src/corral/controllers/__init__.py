"""corral's own controllers. To add one: write its module and name its factory in CONTROLLERS."""

from collections.abc import Callable
from typing import Any

from corral.api.kinds.core.machine_nodes import ANYWHERE, Placement
from corral.api.kinds.kubevirt.installation import CPU_RATIO
from corral.controllers import (
    checkpoint,
    claim,
    datavolume,
    evacuation,
    pool,
    replicaset,
    vm,
    vmi,
    warmpool,
    workload_update,
)
from corral.controllers.metrics import SOURCES
from corral.controllers.vmi import migration
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller

__all__ = ["SOURCES", "controllers"]

CONTROLLERS: tuple[Callable[[ControllerContext], Controller[Any]], ...] = (
    replicaset.controller,
    warmpool.controller,
    claim.binder,
    claim.controller,
    checkpoint.controller,
    pool.controller,
    pool.finalizer_controller,
    vm.controller,
    datavolume.controller,
    datavolume.datasources,
    evacuation.controller,
    workload_update.labels,
    workload_update.controller,
)
"""Factories; each makes one controller, and controllers meet only in the API's objects. Those
that create launcher pods are made below: they take options."""


def controllers(
    context: ControllerContext, *, cpu_ratio: int = CPU_RATIO, placement: Placement = ANYWHERE
) -> list[Controller[Any]]:
    """Return all controllers.

    ``cpu_ratio`` is ``corral up --cpu-allocation-ratio``; ``placement`` is added to launcher pods.
    """
    launching = (vmi.controller, migration.controller)
    return [
        *(make(context) for make in CONTROLLERS),
        *(make(context, cpu_ratio=cpu_ratio, placement=placement) for make in launching),
    ]
