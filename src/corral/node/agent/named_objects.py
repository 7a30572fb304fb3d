"""Secrets, ConfigMaps and ServiceAccounts that the VMIs of a node name, each watched by its name.

A node may not list all objects of these kinds, so it watches them one by one, as the kubelet does
(pkg/kubelet/util/manager, WatchBasedManager).
"""

import asyncio

from corral.aio import Background
from corral.api.kind import Kind
from corral.api.kinds.vmi.referenced_objects import named_objects
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.informer import Informer
from corral.reconcile.objects import Partial


class NamedObjects(Informer[Partial]):
    """An informer of the metadata of the objects of one kind that cached VMIs name.

    Handlers see the objects of all names; the cache itself stays empty.
    """

    def __init__(self, client: Client, kind: Kind, vmis: Informer[VirtualMachineInstance]) -> None:
        super().__init__(client, Partial, kind)
        self._vmis = vmis
        self._changed = asyncio.Event()
        vmis.handle(self._on_vmi)

    async def run(self) -> None:
        """Watch the named objects until cancelled."""
        followed: dict[Key, asyncio.Task[None]] = {}
        async with Background() as tasks:
            while True:
                self._changed.clear()
                named = {key for vmi in self._vmis.items() for key in self._named(vmi)}
                for key in followed.keys() - named:
                    followed.pop(key).cancel()
                for key in named - followed.keys():
                    followed[key] = tasks.start(
                        self._follow_one(key), name=f"{self._kind.resource} {key}"
                    )
                await self._changed.wait()

    async def _follow_one(self, key: Key) -> None:
        informer = Informer(
            self._client,
            Partial,
            self._kind,
            namespace=key.namespace,
            fields=f"metadata.name={key.name}",
        )
        for handler in self._handlers:
            informer.handle(handler)
        await informer.run()

    def _on_vmi(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if self._named(old) != self._named(new):
            self._changed.set()

    def _named(self, vmi: VirtualMachineInstance | None) -> set[Key]:
        if vmi is None:
            return set()
        namespace = vmi.metadata.namespace
        found = named_objects(vmi)
        return {Key(namespace, each.name) for each in found if each.kind == self._kind.name}
