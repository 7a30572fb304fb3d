"""Writes the upload address into CDI's configuration, which clients read.

The object is created if missing, and its status repaired after changes.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from corral.api.errors import AlreadyExists
from corral.api.kinds.cdi import cdiconfig
from corral.api.kinds.cdi.cdiconfig import CDIConfig
from corral.api.object import Key
from corral.api.patch.merge import difference
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.workqueue import WorkQueue

KEY: Final = Key("", cdiconfig.NAME)


def controller(url: str, authority: str) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller of the CDIConfig.

    ``url`` is the upload proxy's, ``authority`` its CA as PEM.
    """

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = UploadAddress(context, url, authority)
        return Controller(
            "upload-address", loop.reconcile, queue=loop.queue, sources=(loop.found,), workers=1
        )

    return factory


class UploadAddress:
    """Cache and desired status of the controller."""

    def __init__(self, context: ControllerContext, url: str, authority: str) -> None:
        self.queue = WorkQueue[Key]()
        self.found = context.informers.of(CDIConfig)
        self._client = context.client
        self._desired = cdiconfig.status_patch(url, authority)
        self.found.handle(self._changed)
        self.queue.add(KEY)

    def _changed(self, _old: CDIConfig | None, _new: CDIConfig | None) -> None:
        self.queue.add(KEY)

    async def reconcile(self, key: Key) -> None:
        """Create the object, or repair its status."""
        found = self.found.get(key)
        if found is None:
            try:
                found = await self._client.create(CDIConfig, {"metadata": {"name": key.name}})
            except AlreadyExists:
                return  # the cache will show it
        change = difference({"status": msgspec.to_builtins(found.status)}, self._desired)
        if change:
            await self._client.patch(CDIConfig, key, change, subresource="status")
