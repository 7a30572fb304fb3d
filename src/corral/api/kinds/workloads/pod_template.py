"""PodTemplate: names, columns, defaults and validation."""

from lightkube.models.core_v1 import PodTemplate

from corral.api.errors import limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.core import pod
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.template import (
    default_template,
    selector_text,
    template_causes,
    template_columns,
)
from corral.api.object import Document


def _default(document: Document) -> None:
    document.setdefault("template", {})
    default_template(document, "template")


def _validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    causes = template_causes("template", document["template"], restarts=pod.RESTART_POLICIES)
    return Verdict(limited(causes))


_CONTAINERS, _IMAGES = template_columns("template", selector=False)

POD_TEMPLATE = kubernetes_kind(
    group="",
    plural="podtemplates",
    view=PodTemplate,
    status=False,
    columns=(
        Column(name="Containers", cell=_CONTAINERS.cell, description="containers of its pods"),
        Column(name="Images", cell=_IMAGES.cell, description="images of its pods"),
        Column(
            name="Pod Labels",
            cell=lambda document: selector_text(at(document, "template", "metadata", "labels")),
            description="labels of its pods",
        ),
    ),
    default=_default,
    validate=_validate,
)
