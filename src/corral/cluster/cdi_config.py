"""Keeps what CDI's configuration tells of uploads, as CDI's controller does: clients go by it.

One that somebody deletes comes back at once, and what somebody changes in it is mended.
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
    """Makes the controller of the one CDIConfig.

    ``url`` is where clients upload to, and ``authority`` (PEM) has signed who answers there.
    """

    def make(context: ControllerContext) -> Controller[Key]:
        loop = UploadAddress(context, url, authority)
        return Controller(
            "upload-address", loop.reconcile, queue=loop.queue, sources=(loop.found,), workers=1
        )

    return make


class UploadAddress:
    """The object as it is, and what it shall tell."""

    def __init__(self, context: ControllerContext, url: str, authority: str) -> None:
        self.queue = WorkQueue[Key]()
        self.found = context.informers.of(CDIConfig)
        self._client = context.client
        self._wanted = cdiconfig.status_patch(url, authority)
        self.found.handle(self._changed)
        self.queue.add(KEY)

    def _changed(self, _old: CDIConfig | None, _new: CDIConfig | None) -> None:
        self.queue.add(KEY)

    async def reconcile(self, key: Key) -> None:
        """Make it, or have it tell the address again."""
        found = self.found.get(key)
        if found is None:
            try:
                found = await self._client.create(CDIConfig, {"metadata": {"name": key.name}})
            except AlreadyExists:
                return  # the cache will tell
        change = difference({"status": msgspec.to_builtins(found.status)}, self._wanted)
        if change:
            await self._client.patch(CDIConfig, key, change, subresource="status")
