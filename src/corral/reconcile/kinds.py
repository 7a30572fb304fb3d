"""Which kinds there are: those that are built in, and those that definitions bring at run time.

Loops that look at objects of every kind follow these.  What the API tells of definitions is all
that is known: there is no back door to the server's own table.
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

Came = Callable[[Kind], None]
"""Is told of a kind that is served from now on, and again when it is served in another way."""


class Kinds:
    """The kinds that are served; ``table`` holds them as of now."""

    def __init__(self, informers: "Informers") -> None:
        self.table = KindTable(KINDS)
        self._informers = informers
        self._built_in = {(kind.group, kind.plural) for kind in KINDS}
        self._followers: list[Came] = []
        self._brought: dict[str, Kind] = {}
        self._definitions: Informer[Any] | None = None

    def follow(self, came: Came) -> None:
        """Call for every kind that is kept, those that come later, too.

        Of a kind that goes, the informers end: they forget what they held.
        """
        self._start()
        self._followers.append(came)
        for kind in self.table:
            if kind.is_kept:
                came(kind)

    async def synced(self) -> None:
        """Wait until all definitions are known, and with them what there is of their kinds."""
        definitions = self._start()
        await definitions.synced()
        for kind in tuple(self._brought.values()):
            for informer in self._informers.of_kind(kind):
                await informer.synced()

    async def are_known(self, client: Client) -> bool:
        """Whether what is known of definitions is what the server has, at this moment."""
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
        before = self._brought.get(name)
        kind = None if new is None else kind_of(msgspec.to_builtins(new))
        # What clients ask for: while it stays, their caches are good.
        if before is not None and (kind is None or kind.asked_version != before.asked_version):
            self.table.remove(before)
            del self._brought[name]
            self._informers.end(before)
            before = None
        if kind is not None:
            self.table.add(kind)
            self._brought[name] = kind
            if before is None:
                for came in self._followers:
                    came(kind)
