"""The control loops that are corral's own.  To add one: write its file, name it in CONTROLLERS."""

from collections.abc import Callable
from typing import Any

from corral.api.kinds.kubevirt.installation import CPU_RATIO
from corral.controllers import datavolume, pool, replicaset, vm, vmi
from corral.controllers.metrics import SOURCES
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller

__all__ = ["SOURCES", "controllers"]

CONTROLLERS: tuple[Callable[[ControllerContext], Controller[Any]], ...] = (
    replicaset.controller,
    pool.controller,
    pool.letting_go,
    vm.controller,
    datavolume.controller,
    datavolume.references,
)
"""Each makes one loop; they run beside each other and meet only in the API's objects.  The loop of
machine instances is made beside these: it is told a ratio."""


def controllers(context: ControllerContext, *, cpu_ratio: int = CPU_RATIO) -> list[Controller[Any]]:
    """All of them; ``cpu_ratio`` is ``corral up --cpu-allocation-ratio``."""
    return [*(make(context) for make in CONTROLLERS), vmi.controller(context, cpu_ratio=cpu_ratio)]
