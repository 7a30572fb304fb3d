"""Deployment: names, columns, defaults and validation."""

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
    negative_causes,
    no_effect_warning,
    selector_change_causes,
    template_columns,
    workload_causes,
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
        *workload_causes(spec, "deployment", "ReplicaSet"),
        *_check_strategy(spec["strategy"]),
        *_check_deadline(spec),
        *selector_change_causes(document, old),
    ]
    return Verdict(limited(causes), [no_effect_warning("Deployment")])


def _check_deadline(spec: Document) -> Iterator[Cause]:
    deadline = spec["progressDeadlineSeconds"]
    if 0 <= deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid(
            "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
        )


def _check_strategy(strategy: Document) -> Iterator[Cause]:
    path, name = "spec.strategy", strategy["type"]
    if name not in (RECREATE, ROLLING):
        yield unsupported(f"{path}.type", name, (RECREATE, ROLLING))
    elif name == RECREATE and strategy.get("rollingUpdate") is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden(f"{path}.rollingUpdate", why)
    elif name == ROLLING:
        yield from _check_rolling_update(f"{path}.rollingUpdate", strategy["rollingUpdate"])


def _check_rolling_update(path: str, rolling: Document) -> Iterator[Cause]:
    faults = step_causes(path, rolling)
    yield from faults
    if not faults and not any(scaled(rolling[name], 100) for name in STEPS):
        why = "may not be 0 when `maxSurge` is 0"
        yield invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], why)


def _ready(document: Document) -> str:
    count: Any = at(document, "status", "readyReplicas") or 0
    desired = at(document, "spec", "replicas")
    return f"{count}/{1 if desired is None else desired}"


READY = Column(name="Ready", cell=_ready, description="ready pods, of those desired")

DEPLOYMENT = kubernetes_kind(
    group="apps",
    plural="deployments",
    short=("deploy",),
    categories=("all",),
    view=Deployment,
    scale=Scale(label_selector=("spec", "selector")),
    columns=(
        READY,
        count("Up-to-date", "status", "updatedReplicas", description="pods of the newest template"),
        count("Available", "status", "availableReplicas", description="pods that are available"),
        age(),
        *template_columns("spec", "template"),
    ),
    default=_default,
    validate=_validate,
)
