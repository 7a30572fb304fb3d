"""The served kinds: built-in ones, and those of CustomResourceDefinitions.

Controllers for objects of every kind subscribe here.  Definitions are read through the API alone,
not from the server's own table, so that this works against any server.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.crd.definition import DEFINITION, CustomResourceDefinition
from corral.api.kinds.table import KindTable
from corral.client.client import Client
from corral.reconcile.objects import Partial, key_of, version_of

if TYPE_CHECKING:
    from corral.reconcile.informer import Informer, Informers

KindHandler = Callable[[Kind], None]
"""Called with a kind when it becomes served, and again when its served version changes."""


class Kinds:
    """The kinds that are served now, in ``table``, and subscriptions to new ones.

    built_in: the kinds that the server has without definitions.
    """

    def __init__(self, informers: "Informers", built_in: KindTable = KINDS) -> None:
        self.table = KindTable(built_in)
        self.built_in = built_in
        self._informers = informers
        self._built_in = {(kind.group, kind.plural) for kind in built_in}
        self._handlers: list[KindHandler] = []
        self._custom: dict[str, Kind] = {}
        self._definitions: Informer[Any] | None = None

    def subscribe(self, handler: KindHandler) -> None:
        """Call a handler for every stored kind, present and future.

        When a kind is removed its informers stop and are cleared; the handler is not called.
        """
        self._start()
        self._handlers.append(handler)
        for kind in self.table:
            if kind.is_kept:
                handler(kind)

    async def synced(self) -> None:
        """Wait until the definitions and the objects of their kinds are cached."""
        definitions = self._start()
        await definitions.synced()
        for kind in tuple(self._custom.values()):
            for informer in self._informers.of_kind(kind):
                await informer.synced()

    async def are_current(self, client: Client) -> bool:
        """Return whether the cached definitions equal those that the server lists now."""
        definitions = self._start()
        listed = (await client.list(Partial, kind=DEFINITION)).items
        return {key_of(each): version_of(each) for each in listed} == {
            key_of(each): version_of(each) for each in definitions.items()
        }

    def _start(self) -> "Informer[Any]":
        if self._definitions is None:
            self._definitions = self._informers.of(CustomResourceDefinition)
            self._definitions.handle(self._changed)
        return self._definitions

    def _changed(
        self, old: CustomResourceDefinition | None, new: CustomResourceDefinition | None
    ) -> None:
        definition = new or old
        assert definition is not None
        spec = definition.spec
        if (spec.group, spec.names.plural) in self._built_in:
            return
        name = key_of(definition).name
        previous = self._custom.get(name)
        kind = None if new is None else kind_of(msgspec.to_builtins(new))
        # Clients request this version: while it is served, their caches stay valid.
        if previous is not None and (
            kind is None or kind.served_api_version != previous.served_api_version
        ):
            self.table.remove(previous)
            del self._custom[name]
            self._informers.stop(previous)
            previous = None
        if kind is not None:
            self.table.add(kind)
            self._custom[name] = kind
            if previous is None:
                for handler in self._handlers:
                    handler(kind)
