"""The built-in Services: ``default/kubernetes`` and ``kube-system/kube-dns``.

They have no selector: their endpoints are fixed and written here. They are created if missing, and
repaired after changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import msgspec
from lightkube.models.core_v1 import Endpoints, Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.api.errors import AlreadyExists
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.deletion import remove
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

Address = IPv4Address | IPv6Address

KUBERNETES = Key("default", "kubernetes")
DNS = Key("kube-system", "kube-dns")
SKIP_MIRROR = {"endpointslice.kubernetes.io/skip-mirror": "true"}
"""Label of Endpoints that have slices of their own."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in Service.

    ``ports`` are (name, protocol, port, target port); ``address`` is the cluster IP,
    ``endpoint_address`` that of the endpoint.
    """

    key: Key
    labels: Mapping[str, str]
    address: Address
    ports: Sequence[tuple[str, str, int, int]]
    endpoint_address: Address


def kubernetes(address: Address, endpoint_address: Address, port: int) -> Builtin:
    """Return the API server's Service; ``port`` is its target port."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return Builtin(KUBERNETES, labels, address, [("https", "TCP", 443, port)], endpoint_address)


def dns(address: Address, endpoint_address: Address) -> Builtin:
    """Return the name server's Service."""
    labels = {
        "k8s-app": "kube-dns",
        "kubernetes.io/cluster-service": "true",
        "kubernetes.io/name": "CoreDNS",
    }
    ports = [("dns", "UDP", 53, 53), ("dns-tcp", "TCP", 53, 53)]
    return Builtin(DNS, labels, address, ports, endpoint_address)


def controller(*builtins: Builtin) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller of these Services."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = Builtins(context, builtins)
        return Controller(
            "builtins", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=1
        )

    return factory


class Builtins:
    """Caches and desired objects of the controller."""

    def __init__(self, context: ControllerContext, builtins: Sequence[Builtin]) -> None:
        self.queue = WorkQueue[Key]()
        self.services = context.informers.of(Service)
        self.endpoints = context.informers.of(Endpoints)
        self.slices = context.informers.of(EndpointSlice)
        self.sources = (self.services, self.endpoints, self.slices)
        self._client = context.client
        self._builtins = {each.key: each for each in builtins}
        for informer in self.sources:
            informer.handle(self._changed)
        for key in self._builtins:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> None:
        """Create or repair the objects of one Service."""
        builtin = self._builtins[key]
        await self._sync(self.services, Service, service(builtin))
        await self._sync(self.endpoints, Endpoints, endpoints(builtin))
        await self._sync(self.slices, EndpointSlice, endpoint_slice(builtin))

    async def _sync(
        self, informer: Informer[Any], view: type[msgspec.Struct], desired: Document
    ) -> None:
        metadata = desired["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        present = informer.get(key)
        if present is None:
            try:
                await self._client.create(view, desired)
            except AlreadyExists:
                self.queue.retry(key)  # the cache has yet to show it
            return
        document = msgspec.to_builtins(present)
        if _includes(document, desired):
            return
        if view is Service and document["spec"].get("clusterIP") != desired["spec"]["clusterIP"]:
            # The cluster IP is immutable: the next sync recreates the Service.
            await remove(self._client, view, key, uid_of(present))
            return
        await self._client.patch(view, key, desired)

    def _changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        for builtin in self._builtins:
            if key.namespace == builtin.namespace and key.name.startswith(builtin.name):
                self.queue.add(builtin)


def service(builtin: Builtin) -> Document:
    address = str(builtin.address)
    family = f"IPv{builtin.address.version}"
    return {
        "metadata": _metadata(builtin, builtin.labels),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack",
            "selector": None,
            "ports": [
                {"name": name, "protocol": protocol, "port": port, "targetPort": target}
                for name, protocol, port, target in builtin.ports
            ],
        },
    }


def endpoints(builtin: Builtin) -> Document:
    return {
        "metadata": _metadata(builtin, SKIP_MIRROR),
        "subsets": [
            {"addresses": [{"ip": str(builtin.endpoint_address)}], "ports": _ports(builtin)}
        ],
    }


def endpoint_slice(builtin: Builtin) -> Document:
    return {
        "metadata": _metadata(builtin, {"kubernetes.io/service-name": builtin.key.name}),
        "addressType": f"IPv{builtin.endpoint_address.version}",
        "endpoints": [
            {"addresses": [str(builtin.endpoint_address)], "conditions": {"ready": True}}
        ],
        "ports": _ports(builtin),
    }


def _ports(builtin: Builtin) -> list[Document]:
    return [
        {"name": name, "port": target, "protocol": protocol}
        for name, protocol, _, target in builtin.ports
    ]


def _metadata(builtin: Builtin, labels: Mapping[str, str]) -> Document:
    return {**builtin.key._asdict(), "labels": dict(labels)}


def _includes(present: Any, desired: Any) -> bool:
    """Report whether an object has all desired fields; others are ignored."""
    if isinstance(desired, dict):
        return isinstance(present, dict) and all(
            _includes(present.get(name), value) for name, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(present, list)
            and len(present) == len(desired)
            and all(_includes(one, other) for one, other in zip(present, desired, strict=True))
        )
    return bool(present == desired)
