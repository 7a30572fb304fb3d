"""Tolerations of pods for nodes that fail (Kubernetes' plugin DefaultTolerationSeconds)."""

from typing import Final

from corral.api.kinds.core.node_taints import NO_EXECUTE, NOT_READY, UNREACHABLE
from corral.api.object import Document

SECONDS: Final = 300
"""Time that pods stay on a node that is not ready or unreachable, unless they say otherwise."""


def admit_pod(pod: Document, old: Document | None) -> None:
    """Add the tolerations that a new pod lacks."""
    if old is not None:
        return
    present = pod["spec"].get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": SECONDS}
        for key in (NOT_READY, UNREACHABLE)
        if not any(_covers(each, key) for each in present)
    ]
    if added:
        pod["spec"]["tolerations"] = [*present, *added]


def _covers(toleration: Document, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in (
        "",
        NO_EXECUTE,
    )
