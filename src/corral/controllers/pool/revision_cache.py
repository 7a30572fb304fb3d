"""Cache of pool templates in ControllerRevisions: read on demand and kept, since they never change.

There is a revision for each VirtualMachine, too: of those only the metadata is in memory.
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
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import key_of, uid_of


class RevisionCache:
    """The revisions of all pools."""

    def __init__(self, context: ControllerContext) -> None:
        self.revisions = context.informers.metadata(CONTROLLER_REVISION)
        self._client = context.client
        self._templates: dict[str, PoolTemplate | None] = {}
        self.revisions.index(by_controller)
        self.revisions.handle(self._changed)

    async def history(self, pool: VirtualMachinePool, used: Collection[str]) -> History:
        """Return the revisions of a pool, with the templates of those in ``used``.

        Raises ApiError.
        """
        cached = {
            key_of(each).name: uid_of(each)
            for each in self.revisions.indexed(by_controller, pool.metadata.uid)
        }
        templates = {}
        for name in cached.keys() & set(used) - {name_of(pool)}:
            template = await self._read(Key(pool.metadata.namespace, name), cached[name])
            if template is not None:
                templates[name] = template
        return History(pool, cached, templates)

    async def delete(self, pool: VirtualMachinePool, name: str) -> None:
        """Delete a revision of a pool. Raises ApiError."""
        key = Key(pool.metadata.namespace, name)
        found = self.revisions.get(key)
        if found is not None:
            await remove(self._client, ControllerRevision, key, uid_of(found))

    async def _read(self, key: Key, uid: str) -> PoolTemplate | None:
        """Return the template in a revision; None if it is gone or cannot be decoded."""
        if uid not in self._templates:
            try:
                found = await self._client.get(ControllerRevision, key.name, key.namespace)
                spec = msgspec.convert(found.data, PoolSpec)
            except NotFound:
                return None
            except msgspec.ValidationError:
                self._templates[uid] = None  # of an old schema: treated as missing
            else:
                self._templates[uid] = spec.virtual_machine_template
        return self._templates[uid]

    def _changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if new is None and old is not None:
            self._templates.pop(uid_of(old), None)
