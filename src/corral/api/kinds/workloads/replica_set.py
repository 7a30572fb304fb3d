"""ReplicaSet and ReplicationController: names, columns, defaults and validation."""

from lightkube.models.apps_v1 import ReplicaSet
from lightkube.models.core_v1 import ReplicationController

from corral.api.errors import limited
from corral.api.kind import Scale, Verdict, at
from corral.api.kinds.causes import invalid, required
from corral.api.kinds.columns import age
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.template import (
    count,
    default_template,
    negative_causes,
    no_effect_warning,
    selector_change_causes,
    template_causes,
    template_columns,
    workload_causes,
)
from corral.api.object import Document

_COLUMNS = (
    count("Desired", "spec", "replicas", description="desired pods"),
    count("Current", "status", "replicas", description="observed pods"),
    count("Ready", "status", "readyReplicas", description="pods that are ready"),
    age(),
    *template_columns("spec", "template"),
)
_SCALE = Scale(label_selector=("spec", "selector"))


def _replicas(document: Document) -> str:
    return str(at(document, "status", "replicas") or 0)


def _default(document: Document) -> None:
    document["spec"].setdefault("replicas", 1)
    default_template(document, "spec", "template")


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    causes = [
        *negative_causes("spec", spec),
        *workload_causes(spec, "deployment", "ReplicaSet"),  # upstream has this message
        *selector_change_causes(document, old),
    ]
    return Verdict(limited(causes), [no_effect_warning("ReplicaSet")])


REPLICA_SET = kubernetes_kind(
    group="apps",
    plural="replicasets",
    short=("rs",),
    categories=("all",),
    view=ReplicaSet,
    scale=_SCALE,
    columns=_COLUMNS,
    selectable={"status.replicas": _replicas},
    default=_default,
    validate=_validate,
)


def _controller_default(document: Document) -> None:
    """Default selector and labels to the labels of the template."""
    spec = document.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec, "template")
    if labels := at(spec, "template", "metadata", "labels"):
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not document["metadata"].get("labels"):
            document["metadata"]["labels"] = dict(labels)


def _controller_validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    selector, template = spec.get("selector") or {}, spec.get("template")
    causes = [*negative_causes("spec", spec)]
    if not selector:
        causes.append(required("spec.selector"))
    if template is None:
        causes.append(required("spec.template"))
    else:
        labels = at(template, "metadata", "labels") or {}
        if not selector.items() <= labels.items():
            why = "`selector` does not match template `labels`"
            causes.append(invalid("spec.template.metadata.labels", labels, why))
        causes += template_causes("spec.template", template, restarts=("Always",))
    return Verdict(limited(causes), [no_effect_warning("ReplicationController")])


REPLICATION_CONTROLLER = kubernetes_kind(
    group="",
    plural="replicationcontrollers",
    short=("rc",),
    categories=("all",),
    view=ReplicationController,
    scale=_SCALE,
    columns=_COLUMNS,
    selectable={"status.replicas": _replicas},
    default=_controller_default,
    validate=_controller_validate,
)
