"""What is told to Prometheus of VirtualMachines and instances: KubeVirt's names and labels."""

from collections.abc import Callable, Mapping

from corral.controllers.metrics import instances, transitions, virtual_machines
from corral.metrics import Source
from corral.reconcile.context import ControllerContext

SOURCES: Mapping[str, Callable[[ControllerContext], Source]] = {
    "instances": instances.source,
    "transitions": transitions.source,
    "virtual machines": virtual_machines.source,
}
"""Each makes a source that reads the caches of a context."""
