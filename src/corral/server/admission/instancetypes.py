"""What VirtualMachines refer to is settled when they are created and changed.

KubeVirt's webhooks do the same: a reference that names a volume is replaced by what the volume's
labels say, and what is referred to may not contradict the machine's template.  What is not there
yet is no reason to refuse: its VirtualMachine says so, and starts when it comes.
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
from corral.store import Store

T = TypeVar("T", InstancetypeSpec, PreferenceSpec)

VM: Final = kind_of(VirtualMachine)
_OBJECT_NAME: Final = f"{GROUP}/object-name"


class Refusal(Exception):
    """A reference that cannot be followed."""


class Instancetypes:
    """Follows the references of VirtualMachines."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._inference = Inference(store)

    def settle(self, document: Document, old: Document | None) -> None:
        """Complete and check the references of a VirtualMachine.  Raises BadRequest and Invalid.

        One whose spec stays as it is passes, whatever has become of what it refers to.
        """
        spec = document["spec"]
        if spec.get("instancetype") is None and spec.get("preference") is None:
            return
        if at(document, "metadata", "deletionTimestamp"):
            return
        if old is not None and spec == old.get("spec"):
            return
        if causes := [cause for matcher in MATCHERS for cause in _faults(spec, old, matcher)]:
            told = ", ".join(cause.message for cause in causes)
            message = f'admission webhook "{WEBHOOK}" denied the request: {told}'
            raise Invalid(message, details=Details(causes=tuple(causes)))
        self._inference.settle(document)
        for matcher in MATCHERS:
            _name_kind(spec, matcher)
        if causes := self._check(document):
            raise VM.denied(document["metadata"].get("name", ""), causes, creating=old is None)

    def expanded(self, vm: Document, refused: type[ApiError] = InternalError) -> Document:
        """A VirtualMachine that says itself what its references say.

        Raises ``refused`` where they cannot be followed, or contradict it.
        """
        if not any(vm["spec"].get(matcher.field) for matcher in MATCHERS):
            return vm
        try:
            instancetype = self._spec(vm, INSTANCETYPE, InstancetypeSpec)
            preference = self._spec(vm, PREFERENCE, PreferenceSpec)
        except Refusal as error:
            raise _said(refused, str(error)) from error
        if causes := expand(vm, instancetype, preference):
            fields = ", ".join(cause.field for cause in causes)
            told = f"VM field(s) {fields} conflicts with selected instance type"
            raise _said(refused, told)
        return vm

    # -- what is referred to

    def _check(self, document: Document) -> list[Cause]:
        spec = document["spec"]
        instancetype = self._found(document, INSTANCETYPE, InstancetypeSpec)
        preference = self._found(document, PREFERENCE, PreferenceSpec)
        if preference is not None:
            _settle_by(spec, preference)
        default_machine_type(spec["template"]["spec"])
        if instancetype is None and preference is None:
            return []  # the template's own rules have the last word
        template = deepcopy(spec["template"])
        if causes := apply(template, instancetype, preference):
            return causes
        machine = template["spec"]
        asked = deepcopy(machine)
        for step in SPEC_STEPS:
            step(asked)
        # What neither says may still be too much together: the machine's rules have the last word.
        return (
            unmet(asked, instancetype, preference)
            or validate_spec(machine, "spec.template.spec", warn=False).causes
        )

    def _found(self, vm: Document, matcher: Matcher, type_: type[T]) -> T | None:
        """The spec of what a reference names; None where it cannot be found."""
        try:
            return self._spec(vm, matcher, type_)
        except Refusal:
            return None

    def _spec(self, vm: Document, matcher: Matcher, type_: type[T]) -> T | None:
        """The spec of what a reference names, as it was where a revision keeps that."""
        said = vm["spec"].get(matcher.field)
        if said is None:
            return None
        namespace = vm["metadata"].get("namespace", "")
        resource, found = self._kept(vm, matcher, said, namespace)
        if resource == "":
            kind = matcher.kind(said.get("kind") or "")
            if kind is None:
                title = matcher.field.capitalize()
                raise Refusal(f"got unexpected kind in {title}Matcher: {said.get('kind')}")
            name = said.get("name")
            if not name:
                raise Refusal(_nameless(matcher, said))
            resource = f'{kind.resource} "{name}"'
            found = self._document(kind, namespace, name)
        if found is None:
            raise Refusal(f"{resource} not found")
        try:
            return msgspec.convert(found["spec"], type_)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise Refusal(f"{resource} cannot be read: {error}") from error

    def _kept(
        self, vm: Document, matcher: Matcher, said: Document, namespace: str
    ) -> tuple[str, Document | None]:
        """What a revision keeps, and how the revision is called: empty where none is named."""
        known = at(vm, "status", matcher.status_field, "controllerRevisionRef", "name")
        name = said.get("revisionName") or known
        if not name:
            return "", None
        resource = f'controllerrevisions.apps "{name}"'
        record = self._document(kind_of(ControllerRevision), namespace, name)
        if record is not None and not said.get("revisionName"):
            labels = at(record, "metadata", "labels") or {}
            if labels.get(_OBJECT_NAME) != said.get("name"):
                return "", None  # another is named since
        return resource, at(record, "data")

    def _document(self, kind: Kind, namespace: str, name: str) -> Document | None:
        key = Key(namespace if kind.namespaced else "", name)
        record = self._store.latest(storage(kind), key)
        return None if record is None else record.document()


def _faults(spec: Document, old: Document | None, matcher: Matcher) -> Iterator[Cause]:
    """What is wrong with a reference itself; the words are KubeVirt's."""
    said, known = spec.get(matcher.field), at(old, "spec", matcher.field)
    if said is None:
        return
    path, title = f"spec.{matcher.field}", f"{matcher.field.capitalize()}Matcher"
    name, volume = said.get("name"), said.get("inferFromVolume")
    revision = said.get("revisionName")
    if known and revision and name != known.get("name") and revision == known.get("revisionName"):
        message = "the Matcher Name has been updated without updating the RevisionName"
        yield Cause(f"{path}.revisionName", message)
        return
    if not name and not volume:
        message = f"Either Name or InferFromVolume should be provided within the {title}"
        yield Cause(path, message, "FieldValueNotFound")
    for field in ("name", "kind") if volume else ():
        if said.get(field):
            message = (
                f"{field.capitalize()} already set, should be cleared before setting "
                "inferFromVolume"
            )
            yield Cause(f"{path}.{field}", message, "FieldValueNotSupported")
    policy = said.get("inferFromVolumeFailurePolicy")
    if policy not in (None, "Ignore", "Reject"):
        message = f"Invalid value '{policy}' for InferFromVolumeFailurePolicy"
        yield Cause(f"{path}.inferFromVolumeFailurePolicy", message)


def _nameless(matcher: Matcher, said: Document) -> str:
    """Why a reference without a name cannot be followed."""
    path = f"spec.{matcher.field}"
    if volume := said.get("inferFromVolume"):
        return (
            f'{path}.inferFromVolume: what volume "{shortened(volume)}" says is looked up when the '
            f"VirtualMachine is created: give {path}.name instead"
        )
    return f"{path}.name: Required value: it names the {matcher.field}"


def _name_kind(spec: Document, matcher: Matcher) -> None:
    """Make a reference name its kind, which counts whatever comes later."""
    said = spec.get(matcher.field)
    if said is not None and not said.get("kind"):
        said["kind"] = matcher.cluster_kind.name


def _settle_by(spec: Document, preference: PreferenceSpec) -> None:
    """Settle at once what a VirtualMachine keeps of its preference: what is not settled yet."""
    machine = spec["template"]["spec"]
    if preference.preferred_architecture and not machine.get("architecture"):
        machine["architecture"] = preference.preferred_architecture
    preferred = preference.machine.preferred_machine_type if preference.machine else ""
    if preferred and not at(machine, "domain", "machine", "type"):
        machine["domain"]["machine"] = {
            **(machine["domain"].get("machine") or {}),
            "type": preferred,
        }
    if storage_class := preferred_storage_class(preference):
        _store_by(spec, storage_class)


def _said(refused: type[ApiError], why: str) -> ApiError:
    """The refusal in Kubernetes' words, of a BadRequest or an InternalError."""
    return refused(why if refused is BadRequest else f"Internal error occurred: {why}")


def _store_by(spec: Document, storage_class: str) -> None:
    """Give DataVolumes that name no storage class this one."""
    for template in spec.get("dataVolumeTemplates") or ():
        for form in ("pvc", "storage"):
            claim = at(template, "spec", form)
            if claim is not None and claim.get("storageClassName") is None:
                claim["storageClassName"] = storage_class
