"""The control loops that are corral's own.  To add one: write its file, name it in CONTROLLERS."""

from collections.abc import Callable
from typing import Any

from corral.controllers import datavolume, pool, replicaset, vm, vmi
from corral.controllers.metrics import SOURCES
from corral.reconcile.controller import Controller
from corral.reconcile.world import World

__all__ = ["CONTROLLERS", "SOURCES"]

CONTROLLERS: tuple[Callable[[World], Controller[Any]], ...] = (
    replicaset.controller,
    pool.controller,
    pool.letting_go,
    vm.controller,
    vmi.controller,
    datavolume.controller,
)
"""Each makes one loop; they run beside each other and meet only in the API's objects."""
