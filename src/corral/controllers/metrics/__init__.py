"""Metrics of VirtualMachines and VMIs, with KubeVirt's names and labels."""

from collections.abc import Callable, Mapping

from corral.controllers.metrics import instances, migrations, transitions, virtual_machines
from corral.metrics import Source
from corral.reconcile.context import ControllerContext

SOURCES: Mapping[str, Callable[[ControllerContext], Source]] = {
    "instances": instances.source,
    "migrations": migrations.source,
    "transitions": transitions.source,
    "virtual machines": virtual_machines.source,
}
"""Factories of sources that read the informers' caches."""
