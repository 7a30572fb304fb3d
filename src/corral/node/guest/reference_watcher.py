"""Tells whose machines name a Secret, a ConfigMap or a ServiceAccount that has changed.

The caches that are looked at hold metadata only, and are there for other loops anyway.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from lightkube.models.core_v1 import ConfigMap, Secret, ServiceAccount

from corral.api.kinds import kind_of
from corral.api.kinds.vmi.referenced_objects import references
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.context import World
from corral.reconcile.objects import key_of

_INDEX = "references"


class Supplies:
    """The objects that instances name; ``changed`` is called with each instance that does."""

    def __init__(self, world: World, changed: Callable[[VirtualMachineInstance], None]) -> None:
        self._changed = changed
        self._instances = world.informers.of(VirtualMachineInstance)
        self._instances.index(_INDEX, _named)
        for view in (Secret, ConfigMap, ServiceAccount):
            kind = kind_of(view)
            world.informers.metadata(kind).handle(partial(self._on_change, kind.name))

    def _on_change(self, kind: str, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if (changed := new or old) is not None:
            key = key_of(changed)
            for vmi in self._instances.indexed(_INDEX, f"{kind}/{key.namespace}/{key.name}"):
                self._changed(vmi)


def _named(vmi: VirtualMachineInstance) -> list[str]:
    namespace = vmi.metadata.namespace
    return [f"{each.kind}/{namespace}/{each.name}" for each in references(vmi.spec)]
