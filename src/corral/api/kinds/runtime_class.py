"""RuntimeClass: a container runtime; nothing here acts on it."""

from lightkube.models.node_v1 import RuntimeClass

from corral.api.errors import limited
from corral.api.kind import Verdict
from corral.api.kinds.causes import each_invalid, invalid, required
from corral.api.kinds.columns import age, field
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.template import no_effect_warning
from corral.api.names import label_faults
from corral.api.object import Document


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    handler = document["handler"]
    causes = [required("handler")] if not handler else []
    causes += each_invalid("handler", handler, label_faults(handler) if handler else ())
    if old is not None and handler != old["handler"]:
        causes.append(invalid("handler", handler, "field is immutable"))
    return Verdict(limited(causes), [no_effect_warning("RuntimeClass")])


RUNTIME_CLASS = kubernetes_kind(
    group="node.k8s.io",
    plural="runtimeclasses",
    view=RuntimeClass,
    namespaced=False,
    status=False,
    columns=(field("Handler", "handler", description="the container runtime"), age()),
    validate=_validate,
)
