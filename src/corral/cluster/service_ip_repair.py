"""Warns of Services whose cluster IPs are outside the Service CIDRs, as Kubernetes does.

The CIDRs were changed after their creation. A cluster IP is immutable, so that users have to
recreate such a Service.
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
    *service_cidrs: Network, repaired: Container[Key] = ()
) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller.

    ``service_cidrs``: one for each IP family; ``repaired``: Services that are recreated
    automatically.
    """

    def factory(context: ControllerContext) -> Controller[Key]:
        queue = WorkQueue[Key]()
        services = context.informers.of(Service)
        recorder = context.recorder(COMPONENT)

        def changed(_old: Service | None, new: Service | None) -> None:
            if new is not None and key_of(new) not in repaired:
                queue.add(key_of(new))

        async def reconcile(key: Key) -> None:
            service = services.get(key)
            if service is not None and (outside := _outside(service, service_cidrs)):
                cidrs = ", ".join(map(str, service_cidrs))
                text = (
                    f"Cluster IP {', '.join(outside)} is not within {cidrs}: recreate the Service"
                )
                recorder.event(service, "Warning", "ClusterIPOutOfRange", text)

        services.handle(changed)
        return Controller("service-ranges", reconcile, queue=queue, sources=(services,), workers=1)

    return factory


def _outside(service: Service, ranges: Sequence[Network]) -> Sequence[str]:
    """Return the cluster IPs of a Service that are in none of the ranges."""
    cluster_ips = (service.spec and service.spec.clusterIPs) or ()
    return [
        each
        for each in cluster_ips
        if (address := parse_address(each)) is not None
        and not any(address in network for network in ranges)
    ]
