"""Which machines and sets of machines are refused: KubeVirt's validating webhooks."""

from corral.api.errors import ApiError, Cause
from corral.api.kind import Verdict, at
from corral.api.object import Document
from corral.api.selectors import label_selector

COMPONENTS = ("system:serviceaccount:kubevirt:", "system:node:")
"""How the names of our own components' users begin; they write what people may not."""


def is_component(user: str) -> bool:
    return user.startswith(COMPONENTS)


def keep_status(document: Document, old: Document, user: str) -> None:
    """Undo what a person changes in a machine's status; KubeVirt does so in silence."""
    if not is_component(user):
        document.pop("status", None)
        if "status" in old:
            document["status"] = old["status"]


def validate_instance(document: Document, old: Document | None, user: str) -> Verdict:
    """The rules for a VirtualMachineInstance."""
    verdict = Verdict()
    if old is not None and not is_component(user) and document["spec"] != old["spec"]:
        verdict.causes.append(Cause("spec", "update of VMI object is restricted"))
    return verdict


def validate_replica_set(document: Document, _old: Document | None, _user: str) -> Verdict:
    """The rules for a VirtualMachineInstanceReplicaSet, and for the machines it will make."""
    verdict = Verdict()
    template = at(document, "spec", "template")
    if template is None:
        verdict.causes.append(Cause("spec.template", "missing virtual machine template."))
        return verdict
    labels = at(template, "metadata", "labels")
    try:
        if not label_selector(at(document, "spec", "selector")).matches(labels):
            message = "selector does not match labels."
            verdict.causes.append(Cause("spec.selector", message))
    except ApiError as error:
        verdict.causes.append(Cause("spec.selector", error.message))
    return verdict
