"""Since when the change that is being told has been so (Kubernetes' trigger time tracker).

What reads the annotation measures how long a change takes to get to the data path.
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
class _Seen:
    service: datetime | None
    pods: dict[str, datetime] = field(default_factory=dict)


class Triggers:
    """What was known of each Service and its pods when it was last looked at."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def time(self, service: Service, pods: Iterable[Pod]) -> str:
        """The earliest moment that is news since the last look, or nothing."""
        key = key_of(service)
        created = service.metadata.creationTimestamp if service.metadata else None
        now = {key_of(pod).name: moment for pod in pods if (moment := ready_since(pod))}
        before = self._seen.get(key)
        self._seen[key] = _Seen(created, now)
        if before is None:
            return rfc3339(created) if created else ""
        news = [
            moment
            for name, moment in now.items()
            if (known := before.pods.get(name)) is None or moment > known
        ]
        if created is not None and before.service is not None and created > before.service:
            news.append(created)
        return rfc3339(min(news)) if news else ""

    def forget(self, key: Key) -> None:
        self._seen.pop(key, None)
