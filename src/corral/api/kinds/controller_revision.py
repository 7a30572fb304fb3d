"""ControllerRevision: an immutable snapshot of a controller's state (Kubernetes' apps/v1)."""

from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import Cause
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid
from corral.api.kinds.columns import NONE, age, number
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document


def _controller(document: Document) -> str:
    """Return the owner as kubectl names it: ``virtualmachine.kubevirt.io/testvm``."""
    for owner in at(document, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}{'.' if group else ''}{group}/{owner.get('name', '')}"
    return NONE


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    causes = []
    if document.get("data") is None:
        causes.append(Cause("data", "Required value: data is mandatory", "FieldValueRequired"))
    revision = document.get("revision") or 0
    if revision < 0:
        causes.append(invalid("revision", revision, "must be greater than or equal to 0"))
    if old is not None and document.get("data") != old.get("data"):
        causes.append(invalid("data", document.get("data"), "field is immutable"))
    return Verdict(causes)


CONTROLLER_REVISION = kubernetes_kind(
    group="apps",
    plural="controllerrevisions",
    view=ControllerRevision,
    status=False,
    columns=(
        Column(name="Controller", cell=_controller, description="the object that owns it"),
        number("Revision", "revision", description="its number"),
        age(),
    ),
    validate=_validate,
)
