"""Tells of Services whose addresses lie outside the range of all Services, as Kubernetes does.

The range was changed after they were made.  An address of a Service never changes, so nobody can
put this right but whoever makes the Service again.
"""

from collections.abc import Callable, Container, Sequence
from ipaddress import IPv4Network, IPv6Network

from lightkube.models.core_v1 import Service

from corral.api.addresses import parse_address
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

Network = IPv4Network | IPv6Network

COMPONENT = "ipallocator-repair-controller"


def controller(
    *service_cidrs: Network, mended: Container[Key] = ()
) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the loop.

    ``service_cidrs``: the range of all Services, one a family; ``mended``: Services that are made
    again without anybody's doing.
    """

    def make(context: ControllerContext) -> Controller[Key]:
        queue = WorkQueue[Key]()
        services = context.informers.of(Service)
        recorder = context.recorder(COMPONENT)

        def changed(_old: Service | None, new: Service | None) -> None:
            if new is not None and key_of(new) not in mended:
                queue.add(key_of(new))

        async def reconcile(key: Key) -> None:
            service = services.get(key)
            if service is not None and (outside := _outside(service, service_cidrs)):
                told = ", ".join(map(str, service_cidrs))
                text = f"Cluster IP {', '.join(outside)} is not within {told}: recreate the Service"
                recorder.event(service, "Warning", "ClusterIPOutOfRange", text)

        services.handle(changed)
        return Controller("service-ranges", reconcile, queue=queue, sources=(services,), workers=1)

    return make


def _outside(service: Service, ranges: Sequence[Network]) -> Sequence[str]:
    """Which of a Service's addresses lie in none of the ranges."""
    written = (service.spec and service.spec.clusterIPs) or ()
    return [
        each
        for each in written
        if (address := parse_address(each)) is not None
        and not any(address in network for network in ranges)
    ]
