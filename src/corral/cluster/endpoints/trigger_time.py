"""Trigger times of endpoint changes (Kubernetes' trigger time tracker).

Clients measure from this annotation how long a change takes to reach the data path.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from lightkube.models.core_v1 import Pod, Service

from corral.api.object import Key
from corral.api.time import rfc3339
from corral.cluster.endpoints.members import ready_since
from corral.reconcile.objects import key_of


@dataclass(slots=True)
class _Times:
    service: datetime | None
    pods: dict[str, datetime] = field(default_factory=dict)


class Triggers:
    """Readiness times of each Service and its pods at the last sync."""

    def __init__(self) -> None:
        self._times: dict[Key, _Times] = {}

    def time(self, service: Service, pods: Iterable[Pod]) -> str:
        """Return the earliest change since the last sync; empty without one."""
        key = key_of(service)
        created = service.metadata.creationTimestamp if service.metadata else None
        now = {key_of(pod).name: moment for pod in pods if (moment := ready_since(pod))}
        before = self._times.get(key)
        self._times[key] = _Times(created, now)
        if before is None:
            return rfc3339(created) if created else ""
        changes = [
            moment
            for name, moment in now.items()
            if (previous := before.pods.get(name)) is None or moment > previous
        ]
        if created is not None and before.service is not None and created > before.service:
            changes.append(created)
        return rfc3339(min(changes)) if changes else ""

    def forget(self, key: Key) -> None:
        self._times.pop(key, None)
