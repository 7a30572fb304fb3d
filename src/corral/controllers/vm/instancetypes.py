"""Instance types and preferences of VirtualMachines: stored as revisions, applied to VMIs.

An instance type may change or be deleted; VMIs of a VirtualMachine must not change with it. So a
copy is stored in a ControllerRevision that the VirtualMachine owns and that its status names
(KubeVirt's pkg/instancetype/revision).
"""

from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, TypeVar, cast

import msgspec
from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.instancetypes.expand import apply_with_devices, expand
from corral.api.instancetypes.matchers import INSTANCETYPE, MATCHERS, PREFERENCE, Matcher
from corral.api.kind import Kind
from corral.api.kinds.kubevirt.installation import EXPAND_ALL, REFERENCE
from corral.api.kinds.kubevirt.instancetype import GROUP, InstancetypeSpec, PreferenceSpec
from corral.api.kinds.kubevirt.virtualmachine import (
    ControllerRevisionRef,
    InstancetypeMatcher,
    InstancetypeStatusRef,
    VirtualMachine,
    VirtualMachineSpec,
)
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.object import Document, Key
from corral.client.client import Client
from corral.controllers.vm.errors import Refused
from corral.reconcile.informer import Informer
from corral.reconcile.objects import labels_of, owner_reference

T = TypeVar("T", InstancetypeSpec, PreferenceSpec)

VERSION: Final = "v1beta1"
_NOT_UPGRADED: Final = (
    "error encountered while upgrading instancetype.kubevirt.io controllerRevisions"
)
_VERSION_LABEL: Final = f"{GROUP}/object-version"


class Instancetypes:
    """Stores instance types and preferences in revisions, and applies them.

    ``revisions`` caches the metadata of all ControllerRevisions.
    """

    def __init__(self, client: Client, revisions: Informer[Any]) -> None:
        self._client = client
        self._revisions = revisions

    async def sync(
        self, vm: VirtualMachine, vmi: VirtualMachineInstance | None, policy: str
    ) -> VirtualMachine:
        """Store what a VirtualMachine refers to, or expand it into the spec; return the updated VM.

        While a VMI runs references stay: expansion waits until it ends, because it changes the spec
        that the VMI is compared with. Raises Refused if a reference cannot be resolved.
        """
        if vm.spec.instancetype is None and vm.spec.preference is None:
            return await self._patch_status(vm, _removed_references(vm))
        if policy == REFERENCE or not (vmi is None or vmi.is_final):
            return await self._store_all(vm)
        revisions = [_revision_name(_stored(vm, matcher)) for matcher in MATCHERS]
        if any(revisions) and policy != EXPAND_ALL:
            return vm
        guard = {"resourceVersion": vm.metadata.resource_version}
        change = {"metadata": guard, "spec": await self._expanded(vm)}
        vm = await self._client.patch(VirtualMachine, vm.key, change)
        vm = await self._patch_status(vm, _removed_references(vm))
        for name in filter(None, revisions):
            await self._delete_revision(vm, name)
        return vm

    async def _store_all(self, vm: VirtualMachine) -> VirtualMachine:
        """Store new references, and upgrade revisions of an old form. Raises Refused."""
        changed, outdated = _removed_references(vm), []
        for matcher in MATCHERS:
            requested, stored = _requested(vm, matcher), _stored(vm, matcher)
            if requested is None:
                continue
            if not _is_current(stored, requested):
                changed[matcher.status_field] = await self._store(vm, matcher, requested)
                continue
            name = _revision_name(stored)
            if not await self._has_current_form(vm, matcher, name):
                reference = {"name": await self._upgrade(vm, name)}
                changed[matcher.status_field] = {"controllerRevisionRef": reference}
                outdated.append(name)
        vm = await self._patch_status(vm, changed)
        for name in outdated:
            await self._delete_revision(vm, name)
        return vm

    async def _patch_status(self, vm: VirtualMachine, status: Document) -> VirtualMachine:
        if not status:
            return vm
        change = {"metadata": {"resourceVersion": vm.metadata.resource_version}, "status": status}
        return await self._client.patch(VirtualMachine, vm.key, change, subresource="status")

    async def _delete_revision(self, vm: VirtualMachine, name: str) -> None:
        """Delete a revision that the status no longer names."""
        with suppress(NotFound):
            await self._client.delete(ControllerRevision, Key(vm.metadata.namespace, name))

    async def _expanded(self, vm: VirtualMachine) -> Document:
        """Return the change of the spec that expands its references. Raises Refused."""
        document = msgspec.to_builtins(vm)
        instancetype = await self._resolve(vm, INSTANCETYPE, InstancetypeSpec)
        preference = await self._resolve(vm, PREFERENCE, PreferenceSpec)
        if conflicts := expand(document, instancetype, preference):
            fields = ", ".join(each.field for each in conflicts)
            cause = f"VM field(s) {fields} conflicts with selected instance type"
            message = f"error encountered while expanding into VirtualMachine: {cause}"
            raise Refused("FailedCreate", message)
        no_references: Document = dict.fromkeys(matcher.field for matcher in MATCHERS)
        return no_references | {"template": document["spec"]["template"]}

    async def apply(self, vm: VirtualMachine, vmi: Document) -> None:
        """Apply instance type and preference to the document of a VMI. Raises Refused."""
        if vm.spec.instancetype is None and vm.spec.preference is None:
            return
        instancetype = await self._resolve(vm, INSTANCETYPE, InstancetypeSpec)
        preference = await self._resolve(vm, PREFERENCE, PreferenceSpec)
        conflicts = apply_with_devices(vmi, instancetype, preference, path="spec")
        if conflicts:
            fields = ", ".join(each.field for each in conflicts)
            message = f"VMI conflicts with instancetype spec in fields: [{fields}]"
            raise Refused("FailedCreate", f"Failure while starting VMI: {message}")
        annotations = vmi["metadata"]["annotations"]
        for matcher in MATCHERS:
            if (requested := _requested(vm, matcher)) is not None:
                in_cluster = requested.kind.lower() in _cluster_spellings(matcher)
                scope = f"cluster-{matcher.field}" if in_cluster else matcher.field
                annotations[f"kubevirt.io/{scope}-name"] = requested.name

    async def expanded(self, vm: VirtualMachine, spec: VirtualMachineSpec) -> Spec:
        """Return the spec of the VMI that a spec of a VirtualMachine makes. Raises Refused."""
        document: Document = msgspec.to_builtins(spec.template)
        metadata = document["metadata"] = document.get("metadata") or {}
        metadata["annotations"] = metadata.get("annotations") or {}
        await self.apply(msgspec.structs.replace(vm, spec=spec), document)
        return msgspec.convert(document["spec"], Spec)

    # -- storing

    async def _store(
        self, vm: VirtualMachine, matcher: Matcher, requested: InstancetypeMatcher
    ) -> Document:
        """Store a revision of the referenced object; return the status reference to it."""
        name = requested.revision_name
        try:
            if not name:
                name = await self._copy(vm, matcher, requested)
        except (NotFound, ValueError) as error:
            raise _not_found(matcher, str(error)) from error
        except ApiError as error:
            cause = "error encountered while storing instancetype.kubevirt.io controllerRevisions"
            raise Refused("FailedCreate", f"{cause}: {error}") from error
        reference = InstancetypeStatusRef(
            name=requested.name,
            kind=requested.kind,
            controller_revision_ref=ControllerRevisionRef(name=name),
        )
        document: Document = msgspec.to_builtins(reference)
        return document

    async def _copy(
        self, vm: VirtualMachine, matcher: Matcher, requested: InstancetypeMatcher
    ) -> str:
        kind = _kind(matcher, requested)
        namespace = vm.metadata.namespace if kind.namespaced else ""
        found: Any = await self._client.get(kind.view, requested.name, namespace)
        metadata = found.metadata
        return await self._create(
            vm,
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": kind.name,
                "metadata": {
                    "name": requested.name,
                    "uid": metadata.uid,
                    "generation": metadata.generation,
                },
                "spec": msgspec.to_builtins(found.spec),
            },
        )

    async def _upgrade(self, vm: VirtualMachine, name: str) -> str:
        """Store the object of an old revision in one of the current form; return its name."""
        try:
            revision = await self._client.get(ControllerRevision, name, vm.metadata.namespace)
            data: Document = deepcopy(revision.data or {})
            if data.get("apiVersion") == f"{GROUP}/{VERSION}":
                return await self._create(vm, data)
        except ApiError as error:
            raise Refused("FailedCreate", f"{_NOT_UPGRADED}: {error}") from error
        version = data.get("apiVersion")
        cause = f"failed to decode object in ControllerRevision: {name} has apiVersion {version}"
        raise Refused("FailedCreate", f"{_NOT_UPGRADED}: {cause}")

    async def _create(self, vm: VirtualMachine, stored_object: Document) -> str:
        """Create the revision that stores an object; return its name."""
        metadata = stored_object.get("metadata") or {}
        named, uid = metadata.get("name", ""), metadata.get("uid", "")
        generation = metadata.get("generation", 0)
        name = f"{vm.metadata.name}-{named}-{VERSION}-{uid}-{generation}"
        revision = {
            "metadata": {
                "name": name,
                "namespace": vm.metadata.namespace,
                "ownerReferences": [owner_reference(vm)],
                "labels": {
                    f"{GROUP}/object-name": named,
                    f"{GROUP}/object-kind": stored_object["kind"],
                    f"{GROUP}/object-uid": uid,
                    f"{GROUP}/object-generation": str(generation),
                    _VERSION_LABEL: VERSION,
                },
            },
            "data": stored_object,
            "revision": 0,
        }
        try:
            await self._client.create(ControllerRevision, revision)
        except AlreadyExists:
            return name  # an earlier create succeeded, but its response was lost
        return name

    # -- reading

    async def _resolve(self, vm: VirtualMachine, matcher: Matcher, type_: type[T]) -> T | None:
        """Return the spec that a matcher refers to: stored, else live. Raises Refused."""
        requested, stored = _requested(vm, matcher), _stored(vm, matcher)
        if requested is None:
            return None
        name = requested.revision_name or (
            _revision_name(stored) if _is_current(stored, requested) else ""
        )
        try:
            if not name:
                kind = _kind(matcher, requested)
                namespace = vm.metadata.namespace if kind.namespaced else ""
                found: Any = await self._client.get(kind.view, requested.name, namespace)
                return cast("T", deepcopy(found.spec))
            revision = await self._client.get(ControllerRevision, name, vm.metadata.namespace)
            return msgspec.convert(deepcopy(revision.data["spec"]), type_)
        except (NotFound, ValueError) as error:
            raise _not_found(matcher, str(error)) from error
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            cause = f'controllerrevisions.apps "{name}" cannot be read: {error}'
            raise _not_found(matcher, cause) from error

    async def _has_current_form(self, vm: VirtualMachine, matcher: Matcher, name: str) -> bool:
        """Report whether a revision, which must exist, has the current form. Raises Refused.

        Ours have the version in their names; others have a label for it.
        """
        key = Key(vm.metadata.namespace, name)
        if f"-{VERSION}-" in name and self._revisions.get(key) is not None:
            return True
        try:
            revision = await self._client.get(ControllerRevision, *reversed(key))
        except NotFound as error:
            raise _not_found(matcher, str(error)) from error
        return labels_of(revision).get(_VERSION_LABEL) == VERSION


def _not_found(matcher: Matcher, cause: str) -> Refused:
    return Refused(f"FailedFind{matcher.field.capitalize()}", cause)


def _kind(matcher: Matcher, requested: InstancetypeMatcher) -> Kind:
    """Return the kind that a matcher names. Raises ValueError."""
    kind = matcher.kind(requested.kind)
    if kind is None:
        title = matcher.field.capitalize()
        raise ValueError(f"got unexpected kind in {title}Matcher: {requested.kind}")
    return kind


def _removed_references(vm: VirtualMachine) -> Document:
    """Return the status change that removes references that the spec no longer has."""
    return {
        matcher.status_field: None
        for matcher in MATCHERS
        if _requested(vm, matcher) is None and _stored(vm, matcher) is not None
    }


def _requested(vm: VirtualMachine, matcher: Matcher) -> InstancetypeMatcher | None:
    return vm.spec.instancetype if matcher is INSTANCETYPE else vm.spec.preference


def _stored(vm: VirtualMachine, matcher: Matcher) -> InstancetypeStatusRef | None:
    return vm.status.instancetype_ref if matcher is INSTANCETYPE else vm.status.preference_ref


def _revision_name(stored: InstancetypeStatusRef | None) -> str:
    """Return the name of the revision in a status reference; empty without one."""
    return stored.controller_revision_ref.name if stored and stored.controller_revision_ref else ""


def _is_current(stored: InstancetypeStatusRef | None, requested: InstancetypeMatcher) -> bool:
    """Report whether the status names a revision of what the spec refers to."""
    if stored is None or stored.controller_revision_ref is None:
        return False
    if requested.revision_name not in ("", stored.controller_revision_ref.name):
        return False
    return (stored.name, stored.kind) == (requested.name, requested.kind)


def _cluster_spellings(matcher: Matcher) -> tuple[str, ...]:
    return ("", matcher.cluster_kind.singular, matcher.cluster_kind.plural)
