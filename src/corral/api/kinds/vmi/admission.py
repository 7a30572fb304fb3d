"""Admission of VMIs and VMI replica sets: KubeVirt's validating webhooks.

``validation`` has the rules of the spec itself, ``ineffective_fields`` the fields that this version
does not implement; here are the rules that depend on the kind, the stored object and the user.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from corral.api.errors import BadRequest, Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.label_selectors import count_causes
from corral.api.kinds.vmi.ineffective_fields import check_effects
from corral.api.kinds.vmi.live_update import BOOT_SOCKETS
from corral.api.kinds.vmi.replacement import check_annotation
from corral.api.kinds.vmi.shared_disks import shared_disks
from corral.api.kinds.vmi.start_annotations import check_start
from corral.api.kinds.vmi.validation import check_spec
from corral.api.kinds.vmi.validation.capacity import UUID, small_memory_warnings
from corral.api.kinds.vmi.vmi import Spec
from corral.api.object import Document
from corral.api.quantity import ZERO, amount
from corral.api.selectors import label_selector

COMPONENTS = (
    "system:serviceaccount:kubevirt:",
    "system:serviceaccount:corral-system:",
    "system:node:",
    "system:kube-controller-manager",
)
"""Prefixes of our own components' user names, which may write what others may not.

The namespaces are those of the controllers in this process and of ``corral controllers``.  The last
is for the controllers that stand in for kube-controller-manager: they fail the VMIs of lost nodes.
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
"""Labels of VMIs that only components may set."""

REFUSED_ANNOTATIONS = {
    "hooks.kubevirt.io/hookSidecars": "sidecar feature gate is not enabled in kubevirt-config",
    "kubevirt.io/ignitiondata": (
        "ExperimentalIgnitionSupport feature gate is not enabled in kubevirt-config"
    ),
}
"""Annotations that would change the machine, and KubeVirt's message for each."""

_CACHE_SIZE: Final = 64
"""Specs whose verdict is cached: all VMIs of a set have the same spec."""
_MOST_CACHED_BYTES: Final = 16 << 10
"""Bytes of the largest encoded spec that is cached."""


def is_component(user: str) -> bool:
    """Return whether a user is one of our own components."""
    return user.startswith(COMPONENTS)


def keep_status(document: Document, old: Document, user: str) -> None:
    """Restore the stored status on updates by users; KubeVirt does so silently, too."""
    if is_component(user):
        return
    document.pop("status", None)
    if "status" in old:
        document["status"] = old["status"]


def validate_instance(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a VirtualMachineInstance."""
    trusted = is_component(user)
    if old is not None:
        return Verdict([] if trusted else list(_check_update(document, old)))
    verdict = validate_spec(document["spec"], "spec", warn=not trusted)
    verdict.causes += _check_memory_is_requested(document["spec"])
    verdict.causes += check_new_metadata(document, "metadata", user)
    return verdict


def validate_replica_set(document: Document, old: Document | None, user: str) -> Verdict:
    """Validate a VirtualMachineInstanceReplicaSet and its template.

    An unchanged spec passes: rules that became stricter since it was stored must not block changes
    of the set's metadata, such as the removal of its finalizers.
    """
    if faults := check_annotation(document, old):
        return Verdict(faults)
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return Verdict()
    template = spec.get("template")
    if template is None:
        message = "missing virtual machine template."
        return Verdict([Cause("spec.template", message, "FieldValueRequired")])
    changed = old is None or template != at(old, "spec", "template")
    warn = changed and not is_component(user)
    verdict = validate_spec(template["spec"], "spec.template.spec", warn=warn)
    if warn:
        verdict.warnings += shared_disks(template["spec"], "spec.template.spec")
    verdict.causes += check_start(template, "spec.template.metadata")
    replicas = spec.get("replicas")
    if replicas is not None and replicas < 0:
        message = f"Invalid value: {replicas}: should be a non-negative integer"
        verdict.causes.append(Cause("spec.replicas", f"spec.replicas: {message}"))
    verdict.causes += check_selector(
        spec.get("selector"), at(template, "metadata", "labels"), "virtualmachineinstancereplicaset"
    )
    return verdict


def validate_spec(document: dict[str, Any], path: str, *, warn: bool) -> Verdict:
    """Validate the spec of a VMI or of a template; ``path`` is where it is in its object."""
    spec = msgspec.json.encode(_without_identity(document))
    validate = _validate_cached if len(spec) <= _MOST_CACHED_BYTES else _validate_encoded
    causes, warnings = validate(spec, path)
    return Verdict([*causes], [*warnings] if warn else [])


def _without_identity(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec without its firmware UUID if that is valid: it would defeat the cache."""
    uuid = at(spec, "domain", "firmware", "uuid")
    if not isinstance(uuid, str) or not UUID.fullmatch(uuid):
        return spec
    domain = spec["domain"]
    return spec | {"domain": domain | {"firmware": domain["firmware"] | {"uuid": ""}}}


def _validate_encoded(spec: bytes, path: str) -> tuple[Sequence[Cause], Sequence[str]]:
    """Return the causes and the warnings of an encoded spec."""
    document = msgspec.json.decode(spec)
    try:
        typed = msgspec.convert(document, Spec)
        causes = limited(check_spec(typed, path))
    except msgspec.ValidationError as error:
        return [Cause(path, f"{path}: {error}")], []
    unsupported, warnings = check_effects(document, path)
    return causes + unsupported, [*warnings, *small_memory_warnings(typed, path)]


_validate_cached = lru_cache(maxsize=_CACHE_SIZE)(_validate_encoded)


def check_new_metadata(document: Document, path: str, user: str) -> Iterator[Cause]:
    """Check the metadata of a new VMI, or of a template; ``path`` is where it is."""
    if not is_component(user) and _reserved(document):
        message = "creation of the following reserved kubevirt.io/ labels on a VMI object is "
        yield Cause(f"{path}.labels", f"{message}prohibited", "FieldValueNotSupported")
    for name, reason in REFUSED_ANNOTATIONS.items():
        if at(document, "metadata", "annotations", name):
            here = f"{path}.annotations"
            yield Cause(here, f"{reason}, invalid entry {here}.{name}")
    yield from check_start(document, path)


def _check_update(document: Document, old: Document) -> Iterator[Cause]:
    if document.get("spec") != old.get("spec"):
        yield Cause("spec", "update of VMI object is restricted", "FieldValueNotSupported")
    if _reserved(document) != _reserved(old):
        message = "modification of the following reserved kubevirt.io/ labels on a VMI object is "
        yield Cause("metadata.labels", f"{message}prohibited", "FieldValueNotSupported")
    if _boot_sockets(document) != _boot_sockets(old):
        path = f"metadata.annotations[{BOOT_SOCKETS}]"
        message = f"{path}: cannot be changed: its machine has started with as many, and may move"
        yield Cause(path, message, "FieldValueNotSupported")


def _boot_sockets(document: Document) -> str | None:
    """Return the sockets that a VMI starts with, by which the target of a migration is like it."""
    sockets: str | None = at(document, "metadata", "annotations", BOOT_SOCKETS)
    return sockets


def _reserved(document: Document) -> dict[str, str]:
    labels = at(document, "metadata", "labels") or {}
    return {name: value for name, value in labels.items() if name in RESERVED_LABELS}


def _check_memory_is_requested(spec: dict[str, Any]) -> Iterator[Cause]:
    memory = at(spec, "domain", "memory") or {}
    requested = at(spec, "domain", "resources", "requests", "memory")
    if "guest" in memory or "hugepages" in memory or amount(requested) > ZERO:
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
    """Check that a set's selector matches the labels of its template.

    A set whose selector does not match would create VMIs for ever and own none.  An empty selector
    matches everything: Kubernetes' workloads refuse it (apps ValidateReplicaSetSpec), KubeVirt
    accepts it, and deletes what is above ``replicas``.  ``kind`` names the set in the message.
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
