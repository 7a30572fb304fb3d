"""What VirtualMachines refer to is settled when they are created and changed.

KubeVirt's webhooks do the same: a reference that names a volume is replaced by what the volume's
labels say, what is referred to must exist, and neither may contradict the machine's template.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Final, TypeVar

import msgspec
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import Cause, NotFound
from corral.api.instancetypes.apply import apply
from corral.api.instancetypes.matchers import INSTANCETYPE, PREFERENCE, Matcher, volume_claim
from corral.api.instancetypes.preferred import preferred_storage_class
from corral.api.instancetypes.requirements import lacking
from corral.api.kind import Kind, at
from corral.api.kinds import kind_of
from corral.api.kinds.admission import judge
from corral.api.kinds.datavolume import DataVolume
from corral.api.kinds.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.kinds.virtualmachine import VirtualMachine
from corral.api.object import Document, Key
from corral.server.call import storage
from corral.store import Store

T = TypeVar("T", InstancetypeSpec, PreferenceSpec)

VM: Final = kind_of(VirtualMachine)
_NOT_FOUND: Final = "FieldValueNotFound"


class Refusal(Exception):
    """A reference that cannot be followed."""


class Instancetypes:
    """Follows the references of VirtualMachines."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, document: Document, old: Document | None) -> None:
        """Complete and check the references of a VirtualMachine.  Raises Invalid.

        One whose spec stays as it is passes, whatever has become of what it refers to.
        """
        spec = document["spec"]
        if spec.get("instancetype") is None and spec.get("preference") is None:
            return
        if at(document, "metadata", "deletionTimestamp"):
            return
        if old is not None and spec == old.get("spec"):
            return
        causes = [
            *self._name(document, INSTANCETYPE),
            *self._name(document, PREFERENCE),
        ] or self._check(document)
        if causes:
            raise VM.denied(document["metadata"].get("name", ""), causes, creating=old is None)

    def expanded(self, vm: Document) -> Document:
        """A VirtualMachine that says itself what its references say.  Raises Invalid."""
        for matcher in (INSTANCETYPE, PREFERENCE):
            kept = at(vm, "status", f"{matcher.field}Ref", "controllerRevisionRef", "name")
            if kept and (said := vm["spec"].get(matcher.field)) is not None:
                said["revisionName"] = kept
        spec, namespace = vm["spec"], vm["metadata"].get("namespace", "")
        try:
            instancetype = self._spec(INSTANCETYPE, spec, namespace, InstancetypeSpec)
            preference = self._spec(PREFERENCE, spec, namespace, PreferenceSpec)
        except Refusal as error:
            raise NotFound(str(error)) from error
        if causes := apply(spec["template"], instancetype, preference):
            raise VM.denied(vm["metadata"]["name"], causes, creating=False)
        for matcher in (INSTANCETYPE, PREFERENCE):
            spec.pop(matcher.field, None)
        return vm

    # -- references

    def _name(self, document: Document, matcher: Matcher) -> Iterator[Cause]:
        """Make a reference name an object of a kind, whatever way it was written."""
        spec = document["spec"]
        said = spec.get(matcher.field)
        if said is None:
            return
        if volume := said.get("inferFromVolume"):
            guess = said.get("inferFromVolumeFailurePolicy") == "Ignore"
            try:
                spec[matcher.field] = self._inferred(document, matcher, volume)
            except Refusal as error:
                if guess:
                    del spec[matcher.field]
                else:
                    yield Cause(f"spec.{matcher.field}", str(error))
            else:
                if guess and matcher is INSTANCETYPE:  # memory was for the case that it fails
                    spec["template"]["spec"]["domain"].pop("memory", None)
            return
        kind = matcher.kind(said.get("kind") or "")
        if kind is None:
            message = f"got unexpected kind in {_title(matcher)}Matcher: {said.get('kind')}"
            yield Cause(f"spec.{matcher.field}", _unfound(matcher, message), _NOT_FOUND)
        elif not said.get("kind"):
            said["kind"] = kind.name

    def _inferred(self, document: Document, matcher: Matcher, volume: str) -> Document:
        """What a volume says that suits it, by labels of its claim or of what fills it."""
        found = volume_claim(document["spec"], volume)
        if found is None:
            raise Refusal(
                f"unable to find volume {volume} to infer defaults: it must be a "
                "persistentVolumeClaim or a dataVolume"
            )
        namespace = document["metadata"].get("namespace", "")
        for labels in self._labels(namespace, *found):
            if (inferred := matcher.inferred(labels)) is not None:
                return inferred
        raise Refusal(f"unable to find required {matcher.name_label} label on the volume {volume}")

    def _labels(
        self, namespace: str, claim: str, template: Document | None
    ) -> Iterator[Mapping[str, str]]:
        volume = template or self._find(kind_of(DataVolume), namespace, claim)
        yield at(volume, "metadata", "labels") or {}
        yield self._claim_labels(namespace, claim)
        if source := at(volume, "spec", "source", "pvc"):
            yield self._claim_labels(source.get("namespace") or namespace, source["name"])

    def _claim_labels(self, namespace: str, name: str) -> Mapping[str, str]:
        claim = self._find(kind_of(PersistentVolumeClaim), namespace, name)
        return at(claim, "metadata", "labels") or {}

    # -- what is referred to

    def _check(self, document: Document) -> list[Cause]:
        spec, namespace = document["spec"], document["metadata"].get("namespace", "")
        try:
            instancetype = self._spec(INSTANCETYPE, spec, namespace, InstancetypeSpec)
        except Refusal as error:
            message = _unfound(INSTANCETYPE, str(error))
            return [Cause("spec.instancetype", message, _NOT_FOUND)]
        try:
            preference = self._spec(PREFERENCE, spec, namespace, PreferenceSpec)
        except Refusal as error:
            message = _unfound(PREFERENCE, str(error))
            return [Cause("spec.preference", message, _NOT_FOUND)]
        template = deepcopy(spec["template"])
        if storage_class := preferred_storage_class(preference):
            _store_by(spec, storage_class)
        causes = lacking(template["spec"], instancetype, preference)
        causes += apply(template, instancetype, preference)
        # What neither says may still be too much together: the machine's rules have the last word.
        return causes or judge(template["spec"], "spec.template.spec", warn=False).causes

    def _spec(self, matcher: Matcher, spec: Document, namespace: str, type_: type[T]) -> T | None:
        """The spec of what a reference names, as it was if it names a revision."""
        said = spec.get(matcher.field)
        if said is None:
            return None
        if revision := said.get("revisionName"):
            record = self._find(kind_of(ControllerRevision), namespace, revision)
            found = at(record, "data")
            resource = f'controllerrevisions.apps "{revision}"'
        else:
            kind = matcher.kind(said.get("kind") or "")
            assert kind is not None
            found = self._find(kind, namespace, said.get("name") or "")
            resource = f'{kind.resource} "{said.get("name")}"'
        if found is None:
            raise Refusal(f"{resource} not found")
        try:
            return msgspec.convert(found["spec"], type_)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise Refusal(f"{resource} cannot be read: {error}") from error

    def _find(self, kind: Kind, namespace: str, name: str) -> Document | None:
        key = Key(namespace if kind.namespaced else "", name)
        record = self._store.latest(storage(kind), key)
        return None if record is None else record.document()


def _store_by(spec: Document, storage_class: str) -> None:
    """Give DataVolumes that name no storage class this one."""
    for template in spec.get("dataVolumeTemplates") or ():
        for form in ("pvc", "storage"):
            claim = at(template, "spec", form)
            if claim is not None and claim.get("storageClassName") is None:
                claim["storageClassName"] = storage_class


def _title(matcher: Matcher) -> str:
    return matcher.field.capitalize()


def _unfound(matcher: Matcher, why: str) -> str:
    return f"Failure to find {matcher.field}: {why}"
