"""DaemonSet: names, columns, defaults and validation."""

from collections.abc import Iterator

from lightkube.models.apps_v1 import DaemonSet

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, required, unsupported
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.pod_disruption_budget import scaled
from corral.api.kinds.workloads.rollout import (
    ON_DELETE,
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
    selector_text,
    template_columns,
    workload_causes,
)
from corral.api.object import Document


def _default(document: Document) -> None:
    spec = document["spec"]
    default_strategy(spec.setdefault("updateStrategy", {}), 1, 0)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec, "template")


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    causes = [
        *negative_causes("spec", spec),
        *workload_causes(spec, "daemonset", "DaemonSet"),
        *_check_strategy("spec.updateStrategy", spec["updateStrategy"]),
        *selector_change_causes(document, old),
    ]
    return Verdict(limited(causes), [no_effect_warning("DaemonSet")])


def _check_strategy(path: str, strategy: Document) -> Iterator[Cause]:
    if strategy["type"] not in (ROLLING, ON_DELETE):
        yield unsupported(f"{path}.type", strategy["type"], (ROLLING, ON_DELETE))
    if strategy["type"] != ROLLING:
        return
    rolling, path = strategy["rollingUpdate"], f"{path}.rollingUpdate"
    faults = step_causes(path, rolling)
    yield from faults
    if faults:
        return
    unavailable, surge = (scaled(rolling[name], 100) for name in STEPS)
    if unavailable and surge:
        why = "may not be set when maxUnavailable is non-zero"
        yield invalid(f"{path}.maxSurge", rolling["maxSurge"], why)
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


DAEMON_SET = kubernetes_kind(
    group="apps",
    plural="daemonsets",
    short=("ds",),
    categories=("all",),
    view=DaemonSet,
    columns=(
        count(
            "Desired",
            "status",
            "desiredNumberScheduled",
            description="nodes that should have a pod",
        ),
        count("Current", "status", "currentNumberScheduled", description="nodes that have a pod"),
        count("Ready", "status", "numberReady", description="nodes with a pod that is ready"),
        count(
            "Up-to-date",
            "status",
            "updatedNumberScheduled",
            description="pods of the newest template",
        ),
        count("Available", "status", "numberAvailable", description="pods that are available"),
        Column(
            name="Node Selector",
            cell=lambda document: selector_text(
                at(document, "spec", "template", "spec", "nodeSelector")
            ),
            description="labels of its nodes",
        ),
        age(),
        *template_columns("spec", "template"),
    ),
    default=_default,
    validate=_validate,
)
