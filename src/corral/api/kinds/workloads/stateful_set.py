"""StatefulSet: names, columns, defaults and validation."""

from collections.abc import Iterator

from lightkube.models.apps_v1 import StatefulSet

from corral.api.errors import Cause, limited
from corral.api.kind import Scale, Verdict, at
from corral.api.kinds.causes import forbidden, invalid
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.storage import persistentvolumeclaim
from corral.api.kinds.workloads.deployment import READY
from corral.api.kinds.workloads.rollout import ON_DELETE, ROLLING
from corral.api.kinds.workloads.template import (
    default_template,
    negative_causes,
    no_effect_warning,
    template_columns,
    workload_causes,
)
from corral.api.object import Document

ORDERED, PARALLEL = "OrderedReady", "Parallel"
_MUTABLE = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)


def _default(document: Document) -> None:
    spec = document["spec"]
    spec.setdefault("podManagementPolicy", ORDERED)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = ROLLING
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == ROLLING and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec, "template")
    for claim in spec.get("volumeClaimTemplates") or ():
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        persistentvolumeclaim.default(claim)
        claim["status"] = {"phase": "Pending"}


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    causes = [
        *negative_causes("spec", spec),
        *workload_causes(spec, "statefulset", "StatefulSet"),
        *_check_strategies(spec),
        *_check_changes(spec, old),
    ]
    return Verdict(limited(causes), [no_effect_warning("StatefulSet")])


def _check_strategies(spec: Document) -> Iterator[Cause]:
    if spec["podManagementPolicy"] not in (ORDERED, PARALLEL):
        why = f"must be '{ORDERED}' or '{PARALLEL}'"
        yield invalid("spec.podManagementPolicy", spec["podManagementPolicy"], why)
    strategy, path = spec["updateStrategy"], "spec.updateStrategy"
    if strategy["type"] not in (ROLLING, ON_DELETE):
        yield invalid(path, strategy, f"must be '{ROLLING}' or '{ON_DELETE}'")
    elif strategy["type"] == ON_DELETE and "rollingUpdate" in strategy:
        why = f"only allowed for updateStrategy '{ROLLING}'"
        yield invalid(f"{path}.rollingUpdate", strategy["rollingUpdate"], why)
    yield from negative_causes(
        f"{path}.rollingUpdate", strategy.get("rollingUpdate") or {}, "partition"
    )
    for name, policy in spec["persistentVolumeClaimRetentionPolicy"].items():
        if policy not in ("Retain", "Delete"):
            where = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            yield invalid(where, policy, "must be 'Retain' or 'Delete'")


def _check_changes(spec: Document, old: Document | None) -> Iterator[Cause]:
    old_spec = at(old, "spec") or {}
    immutable = {*spec, *old_spec} - {*_MUTABLE}
    if old is not None and any(spec.get(name) != old_spec.get(name) for name in immutable):
        *first, last = (f"'{name}'" for name in _MUTABLE)
        names = f"{', '.join(first)} and {last}"
        yield forbidden(
            "spec", f"updates to statefulset spec for fields other than {names} are forbidden"
        )


STATEFUL_SET = kubernetes_kind(
    group="apps",
    plural="statefulsets",
    short=("sts",),
    categories=("all",),
    view=StatefulSet,
    scale=Scale(label_selector=("spec", "selector")),
    columns=(READY, age(), *template_columns("spec", "template", selector=False)),
    default=_default,
    validate=_validate,
)
