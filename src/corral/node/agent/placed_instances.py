"""The VMIs that run on a node of another host, or migrate to it.

A label selector has no alternative of two labels, so there are two watches.
"""

import asyncio

from corral.aio import Background
from corral.api.kinds import kind_of
from corral.api.kinds.kubevirt.migration import TARGET_NODE
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.client.client import Client
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of, uid_of

Vmi = VirtualMachineInstance


class PlacedInstances(Informer[Vmi]):
    """The cached VMIs with the name of a node in one of the two labels."""

    def __init__(self, client: Client, node: str) -> None:
        kind = kind_of(Vmi)
        super().__init__(client, Vmi, kind)
        self._parts = [
            Informer(client, Vmi, kind, labels=f"{label}={node}")
            for label in (NODE_LABEL, TARGET_NODE)
        ]
        for each in self._parts:
            each.handle(self._on_change)
            each.handle_deleted(self._on_deleted)

    async def run(self) -> None:
        """Follow both watches until cancelled."""
        async with Background() as tasks:
            for each in self._parts:
                tasks.start(each.run(), name=f"part of {self}")
            for each in self._parts:
                await each.synced()
            self._synced.set()
            await asyncio.Event().wait()

    def _on_change(self, old: Vmi | None, new: Vmi | None) -> None:
        if new is not None:
            self._put(new)
        elif old is not None and not self._has(old):
            self._remove(key_of(old), uid_of(old))

    def _has(self, vmi: Vmi) -> bool:
        """Report whether one of the watches shows a VMI."""
        found = (part.get(key_of(vmi)) for part in self._parts)
        return any(each is not None and uid_of(each) == uid_of(vmi) for each in found)

    def _on_deleted(self, vmi: Vmi) -> None:
        for handle in self._deletion_handlers:
            handle(vmi)
