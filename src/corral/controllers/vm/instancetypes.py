"""What VirtualMachines refer to is kept as it was, and put into their machines.

An instance type may change, or go; the machines of a VirtualMachine shall not.  So a copy is kept
in a ControllerRevision that the VirtualMachine owns, and its status names it (KubeVirt's
pkg/instancetype/revision).
"""

from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, TypeVar, cast

import msgspec
from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.instancetypes.expand import expand, furnish
from corral.api.instancetypes.matchers import INSTANCETYPE, MATCHERS, PREFERENCE, Matcher
from corral.api.kind import Kind
from corral.api.kinds.kubevirt.installation import EXPAND_ALL, REFERENCE
from corral.api.kinds.kubevirt.instancetype import GROUP, InstancetypeSpec, PreferenceSpec
from corral.api.kinds.kubevirt.virtualmachine import (
    ControllerRevisionRef,
    InstancetypeMatcher,
    InstancetypeStatusRef,
    VirtualMachine,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
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
    """Keeps what VirtualMachines refer to, and hands it out.

    ``revisions`` holds the metadata of all ControllerRevisions.
    """

    def __init__(self, client: Client, revisions: Informer[Any]) -> None:
        self._client = client
        self._revisions = revisions

    async def follow(
        self, vm: VirtualMachine, vmi: VirtualMachineInstance | None, policy: str
    ) -> VirtualMachine:
        """Keep what a VirtualMachine refers to, or let it say that itself; answers how it is then.

        Of a machine that runs, what it was made from is compared with what is wanted: that it says
        so in other words waits for its end.  Raises Refused where something cannot be found.
        """
        if vm.spec.instancetype is None and vm.spec.preference is None:
            return await self._changed(vm, _dropped(vm))
        if policy == REFERENCE or not (vmi is None or vmi.is_final):
            return await self._keep_all(vm)
        kept = [_kept_name(_told(vm, matcher)) for matcher in MATCHERS]
        if any(kept) and policy != EXPAND_ALL:
            return vm
        guard = {"resourceVersion": vm.metadata.resource_version}
        change = {"metadata": guard, "spec": await self._expanded(vm)}
        vm = await self._client.patch(VirtualMachine, vm.key, change)
        vm = await self._changed(vm, _dropped(vm))
        for name in filter(None, kept):
            await self._discard(vm, name)
        return vm

    async def _keep_all(self, vm: VirtualMachine) -> VirtualMachine:
        """Keep what is referred to anew, and what was kept in an old form.  Raises Refused."""
        changed, outdated = _dropped(vm), []
        for matcher in MATCHERS:
            wanted, told = _wanted(vm, matcher), _told(vm, matcher)
            if wanted is None:
                continue
            if not _tells(told, wanted):
                changed[matcher.status_field] = await self._keep(vm, matcher, wanted)
                continue
            name = _kept_name(told)
            if not await self._is_of_today(vm, matcher, name):
                reference = {"name": await self._upgrade(vm, name)}
                changed[matcher.status_field] = {"controllerRevisionRef": reference}
                outdated.append(name)
        vm = await self._changed(vm, changed)
        for name in outdated:
            await self._discard(vm, name)
        return vm

    async def _changed(self, vm: VirtualMachine, status: Document) -> VirtualMachine:
        if not status:
            return vm
        change = {"metadata": {"resourceVersion": vm.metadata.resource_version}, "status": status}
        return await self._client.patch(VirtualMachine, vm.key, change, subresource="status")

    async def _discard(self, vm: VirtualMachine, name: str) -> None:
        """Delete a revision that the VirtualMachine names no more."""
        with suppress(NotFound):
            await self._client.delete(ControllerRevision, Key(vm.metadata.namespace, name))

    async def _expanded(self, vm: VirtualMachine) -> Document:
        """What changes of a spec that says itself what its references say.  Raises Refused."""
        document = msgspec.to_builtins(vm)
        instancetype = await self._said(vm, INSTANCETYPE, InstancetypeSpec)
        preference = await self._said(vm, PREFERENCE, PreferenceSpec)
        if conflicts := expand(document, instancetype, preference):
            fields = ", ".join(each.field for each in conflicts)
            why = f"VM field(s) {fields} conflicts with selected instance type"
            message = f"error encountered while expanding into VirtualMachine: {why}"
            raise Refused("FailedCreate", message)
        gone: Document = dict.fromkeys(matcher.field for matcher in MATCHERS)
        return gone | {"template": document["spec"]["template"]}

    async def complete(self, vm: VirtualMachine, machine: Document) -> None:
        """Put what was kept into the document of a machine.  Raises Refused."""
        if vm.spec.instancetype is None and vm.spec.preference is None:
            return
        instancetype = await self._said(vm, INSTANCETYPE, InstancetypeSpec)
        preference = await self._said(vm, PREFERENCE, PreferenceSpec)
        conflicts = furnish(machine, instancetype, preference, path="spec")
        if conflicts:
            fields = ", ".join(each.field for each in conflicts)
            message = f"VMI conflicts with instancetype spec in fields: [{fields}]"
            raise Refused("FailedCreate", f"Failure while starting VMI: {message}")
        annotations = machine["metadata"]["annotations"]
        for matcher in MATCHERS:
            if (wanted := _wanted(vm, matcher)) is not None:
                in_cluster = wanted.kind.lower() in _spellings(matcher)
                scope = f"cluster-{matcher.field}" if in_cluster else matcher.field
                annotations[f"kubevirt.io/{scope}-name"] = wanted.name

    # -- keeping

    async def _keep(
        self, vm: VirtualMachine, matcher: Matcher, wanted: InstancetypeMatcher
    ) -> Document:
        """Make the copy; answers the reference to it."""
        name = wanted.revision_name
        try:
            if not name:
                name = await self._copy(vm, matcher, wanted)
        except (NotFound, ValueError) as error:
            raise _unfound(matcher, str(error)) from error
        except ApiError as error:
            why = "error encountered while storing instancetype.kubevirt.io controllerRevisions"
            raise Refused("FailedCreate", f"{why}: {error}") from error
        reference = InstancetypeStatusRef(
            name=wanted.name,
            kind=wanted.kind,
            controller_revision_ref=ControllerRevisionRef(name=name),
        )
        document: Document = msgspec.to_builtins(reference)
        return document

    async def _copy(self, vm: VirtualMachine, matcher: Matcher, wanted: InstancetypeMatcher) -> str:
        kind = _kind(matcher, wanted)
        namespace = vm.metadata.namespace if kind.namespaced else ""
        found: Any = await self._client.get(kind.view, wanted.name, namespace)
        metadata = found.metadata
        return await self._create(
            vm,
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": kind.name,
                "metadata": {
                    "name": wanted.name,
                    "uid": metadata.uid,
                    "generation": metadata.generation,
                },
                "spec": msgspec.to_builtins(found.spec),
            },
        )

    async def _upgrade(self, vm: VirtualMachine, name: str) -> str:
        """Keep what a revision of an old form keeps in one of today's; answers its name."""
        try:
            revision = await self._client.get(ControllerRevision, name, vm.metadata.namespace)
            data: Document = deepcopy(revision.data or {})
            if data.get("apiVersion") == f"{GROUP}/{VERSION}":
                return await self._create(vm, data)
        except ApiError as error:
            raise Refused("FailedCreate", f"{_NOT_UPGRADED}: {error}") from error
        said = data.get("apiVersion")
        why = f"failed to decode object in ControllerRevision: {name} keeps one of {said}"
        raise Refused("FailedCreate", f"{_NOT_UPGRADED}: {why}")

    async def _create(self, vm: VirtualMachine, kept: Document) -> str:
        """Make the revision that keeps an object; answers its name."""
        told = kept.get("metadata") or {}
        named, uid = told.get("name", ""), told.get("uid", "")
        generation = told.get("generation", 0)
        name = f"{vm.metadata.name}-{named}-{VERSION}-{uid}-{generation}"
        revision = {
            "metadata": {
                "name": name,
                "namespace": vm.metadata.namespace,
                "ownerReferences": [owner_reference(vm)],
                "labels": {
                    f"{GROUP}/object-name": named,
                    f"{GROUP}/object-kind": kept["kind"],
                    f"{GROUP}/object-uid": uid,
                    f"{GROUP}/object-generation": str(generation),
                    _VERSION_LABEL: VERSION,
                },
            },
            "data": kept,
            "revision": 0,
        }
        try:
            await self._client.create(ControllerRevision, revision)
        except AlreadyExists:
            return name  # made before, but the answer was lost
        return name

    # -- handing out

    async def _said(self, vm: VirtualMachine, matcher: Matcher, type_: type[T]) -> T | None:
        """The spec of what is referred to: as it was kept, else as it is.  Raises Refused."""
        wanted, told = _wanted(vm, matcher), _told(vm, matcher)
        if wanted is None:
            return None
        name = wanted.revision_name or (_kept_name(told) if _tells(told, wanted) else "")
        try:
            if not name:
                kind = _kind(matcher, wanted)
                namespace = vm.metadata.namespace if kind.namespaced else ""
                found: Any = await self._client.get(kind.view, wanted.name, namespace)
                return cast("T", deepcopy(found.spec))
            revision = await self._client.get(ControllerRevision, name, vm.metadata.namespace)
            return msgspec.convert(deepcopy(revision.data["spec"]), type_)
        except (NotFound, ValueError) as error:
            raise _unfound(matcher, str(error)) from error
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            why = f'controllerrevisions.apps "{name}" cannot be read: {error}'
            raise _unfound(matcher, why) from error

    async def _is_of_today(self, vm: VirtualMachine, matcher: Matcher, name: str) -> bool:
        """Whether a revision, which must be there, has today's form.  Raises Refused.

        What we made says so by its name; others have a label for it.
        """
        key = Key(vm.metadata.namespace, name)
        if f"-{VERSION}-" in name and self._revisions.get(key) is not None:
            return True
        try:
            revision = await self._client.get(ControllerRevision, *reversed(key))
        except NotFound as error:
            raise _unfound(matcher, str(error)) from error
        return labels_of(revision).get(_VERSION_LABEL) == VERSION


def _unfound(matcher: Matcher, why: str) -> Refused:
    return Refused(f"FailedFind{matcher.field.capitalize()}", why)


def _kind(matcher: Matcher, wanted: InstancetypeMatcher) -> Kind:
    """Raises ValueError."""
    kind = matcher.kind(wanted.kind)
    if kind is None:
        title = matcher.field.capitalize()
        raise ValueError(f"got unexpected kind in {title}Matcher: {wanted.kind}")
    return kind


def _dropped(vm: VirtualMachine) -> Document:
    """The change of a status that tells of what is referred to no more."""
    return {
        matcher.status_field: None
        for matcher in MATCHERS
        if _wanted(vm, matcher) is None and _told(vm, matcher) is not None
    }


def _wanted(vm: VirtualMachine, matcher: Matcher) -> InstancetypeMatcher | None:
    return vm.spec.instancetype if matcher is INSTANCETYPE else vm.spec.preference


def _told(vm: VirtualMachine, matcher: Matcher) -> InstancetypeStatusRef | None:
    return vm.status.instancetype_ref if matcher is INSTANCETYPE else vm.status.preference_ref


def _kept_name(told: InstancetypeStatusRef | None) -> str:
    """The revision that a status names; empty for none."""
    return told.controller_revision_ref.name if told and told.controller_revision_ref else ""


def _tells(told: InstancetypeStatusRef | None, wanted: InstancetypeMatcher) -> bool:
    """Whether the status names a copy of what is wanted."""
    if told is None or told.controller_revision_ref is None:
        return False
    if wanted.revision_name not in ("", told.controller_revision_ref.name):
        return False
    return (told.name, told.kind) == (wanted.name, wanted.kind)


def _spellings(matcher: Matcher) -> tuple[str, ...]:
    return ("", matcher.of_cluster.singular, matcher.of_cluster.plural)
