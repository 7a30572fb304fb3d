"""What every cluster's API server tells others of itself, in two ConfigMaps of ``kube-system``.

``extension-apiserver-authentication`` says by which authorities users are known; schedulers,
controllers and other API servers read it before they answer anybody, and do not begin without.
``kube-apiserver-legacy-service-account-token-tracking`` says since when uses of tokens in Secrets
are noted down, which who removes unused ones goes by.  Both are kube-apiserver's own, and put right
when somebody changes them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from lightkube.models.core_v1 import ConfigMap

from corral.api.errors import AlreadyExists, Forbidden
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

AUTHENTICATION: Final = Key("kube-system", "extension-apiserver-authentication")
TRACKING: Final = Key("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
REQUEST_HEADERS: Final = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}
"""How requests that are forwarded in a user's name tell of the user."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Authorities = Callable[[], tuple[str, str]]
"""Answers who certifies users, and who certifies what forwards requests in their names, as PEM."""


def controller(authorities: Authorities) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the controller that keeps both ConfigMaps."""

    def make(context: ControllerContext) -> Controller[Key]:
        loop = SystemConfig(context, authorities)
        return Controller("system-config", loop.reconcile, queue=loop.queue, sources=loop.sources)

    return make


class SystemConfig:
    """The two ConfigMaps, and what they hold by now."""

    def __init__(self, context: ControllerContext, authorities: Authorities) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self._authorities = authorities
        self._present = {
            key: context.informers.of(ConfigMap, fields=f"metadata.name={key.name}")
            for key in (AUTHENTICATION, TRACKING)
        }
        for key, informer in self._present.items():
            informer.handle(self._changed)
            self.queue.add(key)
        self.sources = tuple(self._present.values())

    async def reconcile(self, key: Key) -> None:
        """Make one of them, or put right what it holds."""
        present = self._present[key].get(key)
        if present is None:
            try:
                document = {"metadata": key._asdict(), "data": self._wanted(key, {})}
                await self._client.create(ConfigMap, document)
            except (AlreadyExists, Forbidden):
                return  # the cache has yet to show it, or that the namespace goes
            return
        data: Mapping[str, str] = present.data or {}
        wanted = self._wanted(key, data)
        if not is_being_deleted(present) and any(data.get(name) != wanted[name] for name in wanted):
            await self._client.patch(ConfigMap, key, {"data": wanted})

    def _wanted(self, key: Key, present: Mapping[str, str]) -> dict[str, str]:
        """What a ConfigMap must hold; what else somebody put into it stays."""
        if key == TRACKING:
            since = present.get("since") or ""
            return {"since": since if _DAY.fullmatch(since) else rfc3339(self._clock())[:10]}
        users, proxies = self._authorities()
        certified = {"client-ca-file": users, "requestheader-client-ca-file": proxies}
        return certified | REQUEST_HEADERS

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        changed = new or old
        assert changed is not None
        if (key := key_of(changed)) in self._present:
            self.queue.add(key)
