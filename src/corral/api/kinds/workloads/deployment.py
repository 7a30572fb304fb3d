"""Deployment: pods that are replaced step by step when their template changes."""

from collections.abc import Iterator
from typing import Any

from lightkube.models.apps_v1 import Deployment

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Scale, Verdict, at
from corral.api.kinds.causes import forbidden, invalid, unsupported
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.pod_disruption_budget import scaled
from corral.api.kinds.workloads.rollout import (
    RECREATE,
    ROLLING,
    STEPS,
    default_strategy,
    step_causes,
)
from corral.api.kinds.workloads.template import (
    count,
    default_template,
    described,
    kept_causes,
    negative_causes,
    nothing_acts,
    selector_unchanged,
)
from corral.api.object import Document


def _default(document: Document) -> None:
    spec = document["spec"]
    spec.setdefault("replicas", 1)
    default_strategy(spec.setdefault("strategy", {}), "25%", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    default_template(spec, "template")


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    causes = [
        *negative_causes("spec", spec),
        *kept_causes(spec, "deployment", "ReplicaSet"),
        *_strategy(spec["strategy"]),
        *_deadline(spec),
        *selector_unchanged(document, old),
    ]
    return Verdict(limited(causes), [nothing_acts("Deployment")])


def _deadline(spec: Document) -> Iterator[Cause]:
    deadline = spec["progressDeadlineSeconds"]
    if 0 <= deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid(
            "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
        )


def _strategy(strategy: Document) -> Iterator[Cause]:
    path, name = "spec.strategy", strategy["type"]
    if name not in (RECREATE, ROLLING):
        yield unsupported(f"{path}.type", name, (RECREATE, ROLLING))
    elif name == RECREATE and strategy.get("rollingUpdate") is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden(f"{path}.rollingUpdate", why)
    elif name == ROLLING:
        yield from _rolling(f"{path}.rollingUpdate", strategy["rollingUpdate"])


def _rolling(path: str, rolling: Document) -> Iterator[Cause]:
    faults = step_causes(path, rolling)
    yield from faults
    if not faults and not any(scaled(rolling[name], 100) for name in STEPS):
        why = "may not be 0 when `maxSurge` is 0"
        yield invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], why)


def _ready(document: Document) -> str:
    count: Any = at(document, "status", "readyReplicas") or 0
    wanted = at(document, "spec", "replicas")
    return f"{count}/{1 if wanted is None else wanted}"


READY = Column(name="Ready", cell=_ready, description="pods that are ready, of those wanted")

DEPLOYMENT = kubernetes_kind(
    group="apps",
    plural="deployments",
    short=("deploy",),
    categories=("all",),
    view=Deployment,
    scale=Scale(label_selector=("spec", "selector")),
    columns=(
        READY,
        count("Up-to-date", "status", "updatedReplicas", description="of the newest template"),
        count("Available", "status", "availableReplicas", description="pods that are available"),
        age(),
        *described("spec", "template"),
    ),
    default=_default,
    validate=_validate,
)
