"""The two Services that every cluster has: the API's own, and its name server.

``default/kubernetes`` and ``kube-system/kube-dns`` have no selector; who answers is known, and
written here.  They are made when they are missing and mended when somebody changes them.
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
"""Label of Endpoints whose slices are made by whoever made them."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A Service that is always there.

    ``ports`` are (name, protocol, port, port of who answers); ``address`` is the Service's,
    ``answering`` that of who answers.
    """

    key: Key
    labels: Mapping[str, str]
    address: Address
    ports: Sequence[tuple[str, str, int, int]]
    answering: Address


def kubernetes(address: Address, answering: Address, port: int) -> Builtin:
    """The API server's Service, which answers at ``port``."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return Builtin(KUBERNETES, labels, address, [("https", "TCP", 443, port)], answering)


def dns(address: Address, answering: Address) -> Builtin:
    """The name server's Service."""
    labels = {
        "k8s-app": "kube-dns",
        "kubernetes.io/cluster-service": "true",
        "kubernetes.io/name": "CoreDNS",
    }
    ports = [("dns", "UDP", 53, 53), ("dns-tcp", "TCP", 53, 53)]
    return Builtin(DNS, labels, address, ports, answering)


def controller(*builtins: Builtin) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the controller that keeps these Services."""

    def make(context: ControllerContext) -> Controller[Key]:
        loop = Builtins(context, builtins)
        return Controller(
            "builtins", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=1
        )

    return make


class Builtins:
    """What has to be there, and what is."""

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
        """Make what is missing of one Service, and put right what is not as it should be."""
        builtin = self._builtins[key]
        await self._settle(self.services, Service, service(builtin))
        await self._settle(self.endpoints, Endpoints, endpoints(builtin))
        await self._settle(self.slices, EndpointSlice, endpoint_slice(builtin))

    async def _settle(
        self, informer: Informer[Any], view: type[msgspec.Struct], wanted: Document
    ) -> None:
        metadata = wanted["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        present = informer.get(key)
        if present is None:
            try:
                await self._client.create(view, wanted)
            except AlreadyExists:
                self.queue.retry(key)  # the cache has yet to show it
            return
        document = msgspec.to_builtins(present)
        if _holds(document, wanted):
            return
        if view is Service and document["spec"].get("clusterIP") != wanted["spec"]["clusterIP"]:
            # An address cannot be changed.
            await remove(self._client, view, key, uid_of(present))
            return
        await self._client.patch(view, key, wanted)

    def _changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        for builtin in self._builtins:
            if key.namespace == builtin.namespace and key.name.startswith(builtin.name):
                self.queue.add(builtin)


def service(builtin: Builtin) -> Document:
    """The Service object."""
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
    """The older object that tells who answers."""
    return {
        "metadata": _metadata(builtin, SKIP_MIRROR),
        "subsets": [{"addresses": [{"ip": str(builtin.answering)}], "ports": _ports(builtin)}],
    }


def endpoint_slice(builtin: Builtin) -> Document:
    """The slice that tells who answers."""
    return {
        "metadata": _metadata(builtin, {"kubernetes.io/service-name": builtin.key.name}),
        "addressType": f"IPv{builtin.answering.version}",
        "endpoints": [{"addresses": [str(builtin.answering)], "conditions": {"ready": True}}],
        "ports": _ports(builtin),
    }


def _ports(builtin: Builtin) -> list[Document]:
    return [
        {"name": name, "port": target, "protocol": protocol}
        for name, protocol, _, target in builtin.ports
    ]


def _metadata(builtin: Builtin, labels: Mapping[str, str]) -> Document:
    return {**builtin.key._asdict(), "labels": dict(labels)}


def _holds(present: Any, wanted: Any) -> bool:
    """Whether an object says all that is wanted of it; what else it says is its own."""
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            _holds(present.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(_holds(has, should) for has, should in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)
