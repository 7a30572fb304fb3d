"""Instance types and preferences of VirtualMachines, at creation and update.

As in KubeVirt's webhooks, a reference with inferFromVolume is replaced by the inferred one, and
instance type and preference must not conflict with the template.  A missing one is no reason to
reject the VirtualMachine: its status says so, and it starts once the object exists.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Final, TypeVar

import msgspec
from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    InternalError,
    Invalid,
    shortened,
)
from corral.api.instancetypes.apply import apply
from corral.api.instancetypes.expand import expand
from corral.api.instancetypes.matchers import INSTANCETYPE, MATCHERS, PREFERENCE, Matcher
from corral.api.instancetypes.preferred import preferred_storage_class
from corral.api.instancetypes.requirements import unmet
from corral.api.kind import Kind, at
from corral.api.kinds import kind_of
from corral.api.kinds.kubevirt.instancetype import GROUP, InstancetypeSpec, PreferenceSpec
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.kubevirt.vm_defaults import default_machine_type
from corral.api.kinds.vmi.admission import validate_spec
from corral.api.kinds.vmi.defaults import SPEC_STEPS
from corral.api.object import Document, Key
from corral.server.admission.instancetype_inference import WEBHOOK, Inference
from corral.server.request.call import storage
from corral.store import Objects

T = TypeVar("T", InstancetypeSpec, PreferenceSpec)

VM: Final = kind_of(VirtualMachine)
_OBJECT_NAME: Final = f"{GROUP}/object-name"


class UnresolvedError(Exception):
    """A reference that does not resolve; the message says why."""


class Instancetypes:
    """The admission plugin of VirtualMachines, by the instance types and preferences of a store."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self._inference = Inference(store)

    def admit(self, document: Document, old: Document | None) -> None:
        """Complete and check the references of a VirtualMachine.  Raises BadRequest and Invalid.

        An unchanged spec is not checked: the referenced objects may have changed since.
        """
        spec = document["spec"]
        if spec.get("instancetype") is None and spec.get("preference") is None:
            return
        if at(document, "metadata", "deletionTimestamp"):
            return
        if old is not None and spec == old.get("spec"):
            return
        if causes := [cause for matcher in MATCHERS for cause in _faults(spec, old, matcher)]:
            messages = ", ".join(cause.message for cause in causes)
            message = f'admission webhook "{WEBHOOK}" denied the request: {messages}'
            raise Invalid(message, details=Details(causes=tuple(causes)))
        self._inference.infer(document)
        for matcher in MATCHERS:
            _name_kind(spec, matcher)
        if causes := self._check(document):
            raise VM.denied(document["metadata"].get("name", ""), causes, creating=old is None)

    def expanded(self, vm: Document, error_type: type[ApiError] = InternalError) -> Document:
        """Return a VirtualMachine with instance type and preference expanded into its template.

        Raises ``error_type`` if they do not resolve or conflict with the template.
        """
        if not any(vm["spec"].get(matcher.field) for matcher in MATCHERS):
            return vm
        try:
            instancetype = self._spec(vm, INSTANCETYPE, InstancetypeSpec)
            preference = self._spec(vm, PREFERENCE, PreferenceSpec)
        except UnresolvedError as error:
            raise _error(error_type, str(error)) from error
        if causes := expand(vm, instancetype, preference):
            fields = ", ".join(cause.field for cause in causes)
            message = f"VM field(s) {fields} conflicts with selected instance type"
            raise _error(error_type, message)
        return vm

    # -- referenced objects

    def _check(self, document: Document) -> list[Cause]:
        spec = document["spec"]
        instancetype = self._found(document, INSTANCETYPE, InstancetypeSpec)
        preference = self._found(document, PREFERENCE, PreferenceSpec)
        if preference is not None:
            _apply_preference(spec, preference)
        default_machine_type(spec["template"]["spec"])
        if instancetype is None and preference is None:
            return []  # validation checks the template itself
        template = deepcopy(spec["template"])
        if causes := apply(template, instancetype, preference):
            return causes
        vmi_spec = template["spec"]
        with_defaults = deepcopy(vmi_spec)
        for step in SPEC_STEPS:
            step(with_defaults)
        # Valid parts may be an invalid VMI spec together.
        return (
            unmet(with_defaults, instancetype, preference)
            or validate_spec(vmi_spec, "spec.template.spec", warn=False).causes
        )

    def _found(self, vm: Document, matcher: Matcher, type_: type[T]) -> T | None:
        """Return the spec of a referenced object; None if it does not resolve."""
        try:
            return self._spec(vm, matcher, type_)
        except UnresolvedError:
            return None

    def _spec(self, vm: Document, matcher: Matcher, type_: type[T]) -> T | None:
        """Return the spec of a referenced object, from its ControllerRevision if there is one."""
        reference = vm["spec"].get(matcher.field)
        if reference is None:
            return None
        namespace = vm["metadata"].get("namespace", "")
        resource, target = self._revision_data(vm, matcher, reference, namespace)
        if resource == "":
            kind = matcher.kind(reference.get("kind") or "")
            if kind is None:
                title = matcher.field.capitalize()
                raise UnresolvedError(
                    f"got unexpected kind in {title}Matcher: {reference.get('kind')}"
                )
            name = reference.get("name")
            if not name:
                raise UnresolvedError(_nameless(matcher, reference))
            resource = f'{kind.resource} "{name}"'
            target = self._document(kind, namespace, name)
        if target is None:
            raise UnresolvedError(f"{resource} not found")
        try:
            return msgspec.convert(target["spec"], type_)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise UnresolvedError(f"{resource} cannot be read: {error}") from error

    def _revision_data(
        self, vm: Document, matcher: Matcher, reference: Document, namespace: str
    ) -> tuple[str, Document | None]:
        """Return the name of a ControllerRevision and its data; ("", None) without a revision."""
        previous = at(vm, "status", matcher.status_field, "controllerRevisionRef", "name")
        name = reference.get("revisionName") or previous
        if not name:
            return "", None
        resource = f'controllerrevisions.apps "{name}"'
        record = self._document(kind_of(ControllerRevision), namespace, name)
        if record is not None and not reference.get("revisionName"):
            labels = at(record, "metadata", "labels") or {}
            if labels.get(_OBJECT_NAME) != reference.get("name"):
                return "", None  # the reference has changed since
        return resource, at(record, "data")

    def _document(self, kind: Kind, namespace: str, name: str) -> Document | None:
        key = Key(namespace if kind.namespaced else "", name)
        record = self._store.latest(storage(kind), key)
        return None if record is None else record.document()


def _faults(spec: Document, old: Document | None, matcher: Matcher) -> Iterator[Cause]:
    """Yield the faults of a reference itself, with KubeVirt's messages."""
    reference, previous = spec.get(matcher.field), at(old, "spec", matcher.field)
    if reference is None:
        return
    path, title = f"spec.{matcher.field}", f"{matcher.field.capitalize()}Matcher"
    name, volume = reference.get("name"), reference.get("inferFromVolume")
    revision = reference.get("revisionName")
    if (
        previous
        and revision
        and name != previous.get("name")
        and revision == previous.get("revisionName")
    ):
        message = "the Matcher Name has been updated without updating the RevisionName"
        yield Cause(f"{path}.revisionName", message)
        return
    if not name and not volume:
        message = f"Either Name or InferFromVolume should be provided within the {title}"
        yield Cause(path, message, "FieldValueNotFound")
    for field in ("name", "kind") if volume else ():
        if reference.get(field):
            message = (
                f"{field.capitalize()} already set, should be cleared before setting "
                "inferFromVolume"
            )
            yield Cause(f"{path}.{field}", message, "FieldValueNotSupported")
    policy = reference.get("inferFromVolumeFailurePolicy")
    if policy not in (None, "Ignore", "Reject"):
        message = f"Invalid value '{policy}' for InferFromVolumeFailurePolicy"
        yield Cause(f"{path}.inferFromVolumeFailurePolicy", message)


def _nameless(matcher: Matcher, reference: Document) -> str:
    """Return why a reference without a name does not resolve."""
    path = f"spec.{matcher.field}"
    if volume := reference.get("inferFromVolume"):
        return (
            f'{path}.inferFromVolume: volume "{shortened(volume)}" is evaluated only when the '
            f"VirtualMachine is created: set {path}.name instead"
        )
    return f"{path}.name: Required value: it names the {matcher.field}"


def _name_kind(spec: Document, matcher: Matcher) -> None:
    """Set the default kind of a reference."""
    reference = spec.get(matcher.field)
    if reference is not None and not reference.get("kind"):
        reference["kind"] = matcher.cluster_kind.name


def _apply_preference(spec: Document, preference: PreferenceSpec) -> None:
    """Set fields from a preference, which later changes of it must not affect."""
    vmi_spec = spec["template"]["spec"]
    if preference.preferred_architecture and not vmi_spec.get("architecture"):
        vmi_spec["architecture"] = preference.preferred_architecture
    preferred = preference.machine.preferred_machine_type if preference.machine else ""
    if preferred and not at(vmi_spec, "domain", "machine", "type"):
        vmi_spec["domain"]["machine"] = {
            **(vmi_spec["domain"].get("machine") or {}),
            "type": preferred,
        }
    if storage_class := preferred_storage_class(preference):
        _set_storage_class(spec, storage_class)


def _error(error_type: type[ApiError], why: str) -> ApiError:
    """Return a BadRequest or InternalError with Kubernetes' message."""
    return error_type(why if error_type is BadRequest else f"Internal error occurred: {why}")


def _set_storage_class(spec: Document, storage_class: str) -> None:
    """Set the storage class of DataVolume templates without one."""
    for template in spec.get("dataVolumeTemplates") or ():
        for form in ("pvc", "storage"):
            claim = at(template, "spec", form)
            if claim is not None and claim.get("storageClassName") is None:
                claim["storageClassName"] = storage_class
