"""What pools' revisions hold: read when it is asked for, and kept, since a revision never changes.

There is one revision for each VirtualMachine, too: of those nothing but the metadata is in memory.
"""

from collections.abc import Collection

import msgspec
from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import NotFound
from corral.api.kinds.controller_revision import CONTROLLER_REVISION
from corral.api.kinds.kubevirt.pool import PoolSpec, PoolTemplate, VirtualMachinePool
from corral.api.object import Key
from corral.controllers.pool.revisions import History, name_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.deletion import remove
from corral.reconcile.objects import controller_uid, key_of, uid_of


class Archive:
    """The revisions of all pools."""

    def __init__(self, context: ControllerContext) -> None:
        self.revisions = context.informers.metadata(CONTROLLER_REVISION)
        self._client = context.client
        self._templates: dict[str, PoolTemplate | None] = {}
        self.revisions.index("controller", lambda revision: (controller_uid(revision),))
        self.revisions.handle(self._changed)

    async def history(self, pool: VirtualMachinePool, used: Collection[str]) -> History:
        """The revisions of a pool, of which those with these names are looked into.

        Raises ApiError.
        """
        known = {
            key_of(each).name: uid_of(each)
            for each in self.revisions.indexed("controller", pool.metadata.uid)
        }
        templates = {}
        for name in known.keys() & set(used) - {name_of(pool)}:
            template = await self._read(Key(pool.metadata.namespace, name), known[name])
            if template is not None:
                templates[name] = template
        return History(pool, known, templates)

    async def drop(self, pool: VirtualMachinePool, name: str) -> None:
        """Delete a revision of a pool.  Raises ApiError."""
        key = Key(pool.metadata.namespace, name)
        found = self.revisions.get(key)
        if found is not None:
            await remove(self._client, ControllerRevision, key, uid_of(found))

    async def _read(self, key: Key, uid: str) -> PoolTemplate | None:
        """The template in a revision; None for one that is gone, or cannot be read."""
        if uid not in self._templates:
            try:
                found = await self._client.get(ControllerRevision, key.name, key.namespace)
                spec = msgspec.convert(found.data, PoolSpec)
            except NotFound:
                return None
            except msgspec.ValidationError:
                self._templates[uid] = None  # of a form that is no more: as if it were not there
            else:
                self._templates[uid] = spec.virtual_machine_template
        return self._templates[uid]

    def _changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if new is None and old is not None:
            self._templates.pop(uid_of(old), None)
