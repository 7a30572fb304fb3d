"""ConfigMaps by which the API server describes itself.

``kube-system/extension-apiserver-authentication`` has the CAs of client certificates; schedulers,
controllers and extension API servers read it before they serve.
``kube-system/kube-apiserver-legacy-service-account-token-tracking`` has the day since when uses of
tokens in Secrets are recorded, on which their cleaner relies.
``kube-public/cluster-info`` has the address and the CA of the API server, for nodes that join, as
kubeadm's.  ``kube-system/corral-network`` has the ranges that all nodes share.  All are repaired
after changes by others.
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
from corral.reconcile.events import Clock
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

AUTHENTICATION: Final = Key("kube-system", "extension-apiserver-authentication")
TRACKING: Final = Key("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
CLUSTER_INFO: Final = Key("kube-public", "cluster-info")
NETWORK: Final = Key("kube-system", "corral-network")
REQUEST_HEADERS: Final = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}
"""Headers by which a proxy passes the user of a request on."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Content = Callable[[], Mapping[str, str]]
"""Returns the desired data of a ConfigMap; other keys are kept."""


def authentication(users: str, proxies: str) -> Mapping[str, str]:
    """Return the data of AUTHENTICATION: the CAs of users and of proxies, PEM."""
    authorities = {"client-ca-file": users, "requestheader-client-ca-file": proxies}
    return authorities | REQUEST_HEADERS


def controller(contents: Mapping[Key, Content]) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller that keeps these ConfigMaps, and TRACKING."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = SystemConfig(context, contents)
        return Controller("system-config", loop.reconcile, queue=loop.queue, sources=loop.sources)

    return factory


class SystemConfig:
    """Caches of the ConfigMaps."""

    def __init__(self, context: ControllerContext, contents: Mapping[Key, Content]) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self._contents = contents
        self._present = {
            key: context.informers.of(ConfigMap, fields=f"metadata.name={key.name}")
            for key in (*contents, TRACKING)
        }
        for key, informer in self._present.items():
            informer.handle(self._changed)
            self.queue.add(key)
        self.sources = tuple(self._present.values())

    async def reconcile(self, key: Key) -> None:
        """Create a ConfigMap, or repair its data."""
        present = self._present[key].get(key)
        if present is None:
            try:
                document = {"metadata": key._asdict(), "data": self._desired(key, {})}
                await self._client.create(ConfigMap, document)
            except (AlreadyExists, Forbidden):
                return  # the cache has yet to show it, or that the namespace goes
            return
        data: Mapping[str, str] = present.data or {}
        desired = self._desired(key, data)
        if not is_being_deleted(present) and any(
            data.get(name) != desired[name] for name in desired
        ):
            await self._client.patch(ConfigMap, key, {"data": desired})

    def _desired(self, key: Key, present: Mapping[str, str]) -> Mapping[str, str]:
        """Return the desired data of a ConfigMap; other keys are kept."""
        return tracking(present, self._clock) if key == TRACKING else self._contents[key]()

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        changed = new or old
        assert changed is not None
        if (key := key_of(changed)) in self._present:
            self.queue.add(key)


def tracking(present: Mapping[str, str], clock: Clock) -> Mapping[str, str]:
    """Return the data of TRACKING: the day that it names already, else today."""
    since = present.get("since") or ""
    return {"since": since if _DAY.fullmatch(since) else rfc3339(clock())[:10]}
