"""Which machines and sets of machines are refused: KubeVirt's validating webhooks.

``validation`` holds what is wrong with a spec anywhere, ``ineffective_fields`` what this version
cannot do; here is what depends on the kind, on what was stored before, and on who asks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from corral.api.errors import BadRequest, Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.label_selectors import count_causes
from corral.api.kinds.vmi.ineffective_fields import effects
from corral.api.kinds.vmi.shared_disks import shared_disks
from corral.api.kinds.vmi.validation import check_spec
from corral.api.kinds.vmi.validation.capacity import UUID, scarce_memory
from corral.api.kinds.vmi.vmi import Spec
from corral.api.object import Document
from corral.api.quantity import NOTHING, amount
from corral.api.selectors import label_selector

COMPONENTS = (
    "system:serviceaccount:kubevirt:",
    "system:node:",
    "system:kube-controller-manager",
)
"""How the names of our own components' users begin; they write what people may not.

The last is the loops' that stand in for Kubernetes' own: they fail the machines of lost nodes.
"""
RESERVED_LABELS = frozenset(
    {
        "kubevirt.io/created-by",
        "kubevirt.io/migrationJobUID",
        "kubevirt.io/nodeName",
        "kubevirt.io/migrationTargetNodeName",
        "kubevirt.io/schedulable",
        "kubevirt.io/install-strategy",
    }
)
"""Labels of machines by which components find each other; people may not set them."""


REFUSED_ANNOTATIONS = {
    "hooks.kubevirt.io/hookSidecars": "sidecar feature gate is not enabled in kubevirt-config",
    "kubevirt.io/ignitiondata": (
        "ExperimentalIgnitionSupport feature gate is not enabled in kubevirt-config"
    ),
}
"""Annotations that would change the machine, and the words in which KubeVirt refuses them."""

_REMEMBERED: Final = 64
"""Specs of which the verdict is remembered: the machines of a set all have the same."""
_SHORT: Final = 16 << 10
"""Bytes of an encoded spec that may be remembered."""


def is_component(user: str) -> bool:
    """Whether a user is one of our own components."""
    return user.startswith(COMPONENTS)


def keep_status(document: Document, old: Document, user: str) -> None:
    """Undo what a person changes in a machine's status; KubeVirt does so in silence."""
    if is_component(user):
        return
    document.pop("status", None)
    if "status" in old:
        document["status"] = old["status"]


def validate_instance(document: Document, old: Document | None, user: str) -> Verdict:
    """The rules for a VirtualMachineInstance."""
    trusted = is_component(user)
    if old is not None:
        return Verdict([] if trusted else list(_check_update(document, old)))
    verdict = judge(document["spec"], "spec", warn=not trusted)
    verdict.causes += _check_memory_is_requested(document["spec"])
    verdict.causes += check_new_metadata(document, "metadata", user)
    return verdict


def validate_replica_set(document: Document, old: Document | None, user: str) -> Verdict:
    """The rules for a VirtualMachineInstanceReplicaSet, and for the machines it will make.

    A spec that stays as it is passes: rules that became stricter since must not keep anyone from
    labelling, releasing or deleting a set.
    """
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return Verdict()
    template = spec.get("template")
    if template is None:
        message = "missing virtual machine template."
        return Verdict([Cause("spec.template", message, "FieldValueRequired")])
    changed = old is None or template != at(old, "spec", "template")
    told = changed and not is_component(user)
    verdict = judge(template["spec"], "spec.template.spec", warn=told)
    if told:
        verdict.warnings += shared_disks(template["spec"], "spec.template.spec")
    replicas = spec.get("replicas")
    if replicas is not None and replicas < 0:
        message = f"Invalid value: {replicas}: should be a non-negative integer"
        verdict.causes.append(Cause("spec.replicas", f"spec.replicas: {message}"))
    verdict.causes += check_selector(
        spec.get("selector"), at(template, "metadata", "labels"), "virtualmachineinstancereplicaset"
    )
    return verdict


def judge(document: dict[str, Any], path: str, *, warn: bool) -> Verdict:
    """What holds for a machine's spec, wherever it stands."""
    spec = msgspec.json.encode(_without_identity(document))
    judged = _remembered if len(spec) <= _SHORT else _judged
    causes, warnings = judged(spec, path)
    return Verdict([*causes], [*warnings] if warn else [])


def _without_identity(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec without what is each machine's own: of a uuid that is one, no rule says anything."""
    uuid = at(spec, "domain", "firmware", "uuid")
    if not isinstance(uuid, str) or not UUID.fullmatch(uuid):
        return spec
    domain = spec["domain"]
    return spec | {"domain": domain | {"firmware": domain["firmware"] | {"uuid": ""}}}


def _judged(spec: bytes, path: str) -> tuple[Sequence[Cause], Sequence[str]]:
    """What is wrong with an encoded spec, and the warnings about it."""
    document = msgspec.json.decode(spec)
    try:
        found = msgspec.convert(document, Spec)
        causes = limited(check_spec(found, path))
    except msgspec.ValidationError as error:
        return [Cause(path, f"{path}: {error}")], []
    refused, warnings = effects(document, path)
    return causes + refused, [*warnings, *scarce_memory(found, path)]


_remembered = lru_cache(maxsize=_REMEMBERED)(_judged)


def check_new_metadata(document: Document, path: str, user: str) -> Iterator[Cause]:
    """What a machine's metadata, or that of its template, may not say; ``path`` is where it is."""
    if not is_component(user) and _reserved(document):
        message = "creation of the following reserved kubevirt.io/ labels on a VMI object is "
        yield Cause(f"{path}.labels", f"{message}prohibited", "FieldValueNotSupported")
    for name, reason in REFUSED_ANNOTATIONS.items():
        if at(document, "metadata", "annotations", name):
            here = f"{path}.annotations"
            yield Cause(here, f"{reason}, invalid entry {here}.{name}")


def _check_update(document: Document, old: Document) -> Iterator[Cause]:
    if document.get("spec") != old.get("spec"):
        yield Cause("spec", "update of VMI object is restricted", "FieldValueNotSupported")
    if _reserved(document) != _reserved(old):
        message = "modification of the following reserved kubevirt.io/ labels on a VMI object is "
        yield Cause("metadata.labels", f"{message}prohibited", "FieldValueNotSupported")


def _reserved(document: Document) -> dict[str, str]:
    labels = at(document, "metadata", "labels") or {}
    return {name: value for name, value in labels.items() if name in RESERVED_LABELS}


def _check_memory_is_requested(spec: dict[str, Any]) -> Iterator[Cause]:
    memory = at(spec, "domain", "memory") or {}
    requested = at(spec, "domain", "resources", "requests", "memory")
    if "guest" in memory or "hugepages" in memory or amount(requested) > NOTHING:
        return
    fields = (
        "'spec.domain.memory.guest', 'spec.domain.memory.hugepages.size' "
        "or 'spec.domain.resources.requests.memory'"
    )
    message = f"no memory requested, at least one of {fields} must be set"
    yield Cause("spec.domain.memory.guest", message, "FieldValueRequired")


def check_selector(
    selector: dict[str, Any] | None, labels: dict[str, str] | None, kind: str
) -> Iterator[Cause]:
    """A set must know its own by their labels: it would else make them for ever, and own none.

    An empty selector selects everything there is: Kubernetes' workloads refuse it (apps
    ValidateReplicaSetSpec), while KubeVirt takes it, and deletes what is above ``replicas``.
    ``kind`` is what the message calls the set.
    """
    if too_many := count_causes("spec.selector", selector or {}):
        yield from too_many
        return
    if selector is not None and not any(selector.values()):
        yield Cause("spec.selector", f"empty selector is invalid for {kind}")
        return
    try:
        if not labels or not label_selector(selector).matches(labels):
            yield Cause("spec.selector", "selector does not match labels.")
    except BadRequest as error:
        yield Cause("spec.selector", error.message)
