"""The ConfigMap of the descheduler: its policy, and annotations for what its flags say.  Pure.

The same ConfigMap serves the descheduler itself, which mounts it and knows none of the annotations.
"""

from dataclasses import dataclass
from typing import Final

from lightkube.models.core_v1 import ConfigMap

from corral.api.object import Key
from corral.api.time import parse_duration
from corral.cluster.descheduler.policy import InvalidPolicy, Policy, parse
from corral.reconcile.objects import annotations_of

CONFIG_MAP: Final = Key("kube-system", "descheduler-policy-configmap")
FIELD: Final = "policy.yaml"
INTERVAL: Final = "corral.dev/descheduling-interval"
"""Annotation: the time between two cycles, as ``--descheduling-interval``."""
DRY_RUN: Final = "corral.dev/descheduling-dry-run"
"""Annotation: "true" to evict nothing and to report what would be evicted, as ``--dry-run``."""
INTERVAL_SECONDS: Final = 300.0
"""The default, that of the descheduler's Deployment."""
_LEAST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in a ConfigMap."""

    policy: Policy
    interval_seconds: float
    dry_run: bool


def read(config_map: ConfigMap) -> Settings:
    """Return the settings in a ConfigMap.  Raises InvalidPolicy that names the field."""
    text = (config_map.data or {}).get(FIELD)
    if text is None:
        raise InvalidPolicy(f"data: has no {FIELD}, which is the policy")
    annotations = annotations_of(config_map)
    dry_run = annotations.get(DRY_RUN, "false")
    if dry_run not in ("true", "false"):
        raise InvalidPolicy(f'metadata.annotations[{DRY_RUN}]: must be "true" or "false"')
    try:
        policy = parse(text)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{FIELD}: {error}") from None
    return Settings(policy, _interval(annotations.get(INTERVAL)), dry_run == "true")


def _interval(text: str | None) -> float:
    if text is None:
        return INTERVAL_SECONDS
    path = f"metadata.annotations[{INTERVAL}]"
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise InvalidPolicy(f"{path}: {error}") from None
    if seconds < _LEAST_SECONDS:
        raise InvalidPolicy(f"{path}: must be a second at least, as in 5m")
    return seconds
