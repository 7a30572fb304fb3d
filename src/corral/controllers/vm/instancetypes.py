"""What VirtualMachines refer to is kept as it was, and put into their machines.

An instance type may change, or go; the machines of a VirtualMachine shall not.  So a copy is kept
in a ControllerRevision that the VirtualMachine owns, and its status names it (KubeVirt's
pkg/instancetype/revision).
"""

from copy import deepcopy
from typing import Any, TypeVar

import msgspec
from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.instancetypes.apply import apply
from corral.api.instancetypes.matchers import INSTANCETYPE, PREFERENCE, Matcher
from corral.api.kinds.instancetype import GROUP, InstancetypeSpec, PreferenceSpec
from corral.api.kinds.virtualmachine import (
    ControllerRevisionRef,
    InstancetypeMatcher,
    InstancetypeStatusRef,
    VirtualMachine,
)
from corral.api.object import Document
from corral.client.client import Client
from corral.controllers.vm.refused import Refused
from corral.reconcile.objects import owner_reference

T = TypeVar("T", InstancetypeSpec, PreferenceSpec)

VERSION = "v1beta1"
_MATCHERS = (INSTANCETYPE, PREFERENCE)


class Instancetypes:
    """Keeps what VirtualMachines refer to, and hands it out."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def keep(self, vm: VirtualMachine) -> Document:
        """Keep what is referred to anew; answers the change of the status, mostly none.

        Raises Refused where it cannot be found.
        """
        changed: Document = {}
        for matcher in _MATCHERS:
            wanted, told = _wanted(vm, matcher), _told(vm, matcher)
            if wanted is None:
                if told is not None:
                    changed[f"{matcher.field}Ref"] = None
            elif not _tells(told, wanted):
                changed[f"{matcher.field}Ref"] = await self._keep(vm, matcher, wanted)
        return changed

    async def complete(self, vm: VirtualMachine, machine: Document) -> None:
        """Put what was kept into the document of a machine.  Raises Refused."""
        instancetype = await self._kept(vm, INSTANCETYPE, InstancetypeSpec)
        preference = await self._kept(vm, PREFERENCE, PreferenceSpec)
        conflicts = apply(machine, instancetype, preference, path="spec")
        if conflicts:
            fields = ", ".join(each.field for each in conflicts)
            message = f"VMI conflicts with instancetype spec in fields: [{fields}]"
            raise Refused("FailedCreate", f"Failure while starting VMI: {message}")
        annotations = machine["metadata"]["annotations"]
        for matcher in _MATCHERS:
            if (told := _told(vm, matcher)) is not None:
                in_cluster = told.kind.lower() in _spellings(matcher)
                scope = f"cluster-{matcher.field}" if in_cluster else matcher.field
                annotations[f"kubevirt.io/{scope}-name"] = told.name

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
            raise Refused(f"FailedFind{matcher.field.capitalize()}", str(error)) from error
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
        kind = matcher.kind(wanted.kind)
        if kind is None:
            raise ValueError(f"got unexpected kind in {matcher.field} matcher: {wanted.kind}")
        namespace = vm.metadata.namespace if kind.namespaced else ""
        found: Any = await self._client.get(kind.view, wanted.name, namespace)
        uid, generation = found.metadata.uid, found.metadata.generation
        name = f"{vm.metadata.name}-{wanted.name}-{VERSION}-{uid}-{generation}"
        metadata = {"name": wanted.name, "uid": uid, "generation": generation}
        revision = {
            "metadata": {
                "name": name,
                "namespace": vm.metadata.namespace,
                "ownerReferences": [owner_reference(vm)],
                "labels": {
                    f"{GROUP}/object-name": wanted.name,
                    f"{GROUP}/object-kind": kind.name,
                    f"{GROUP}/object-uid": uid,
                    f"{GROUP}/object-generation": str(generation),
                    f"{GROUP}/object-version": VERSION,
                },
            },
            "data": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": kind.name,
                "metadata": metadata,
                "spec": msgspec.to_builtins(found.spec),
            },
            "revision": 0,
        }
        try:
            await self._client.create(ControllerRevision, revision)
        except AlreadyExists:
            return name  # made before, but the answer was lost
        return name

    # -- handing out

    async def _kept(self, vm: VirtualMachine, matcher: Matcher, type_: type[T]) -> T | None:
        told = _told(vm, matcher)
        if _wanted(vm, matcher) is None or told is None or told.controller_revision_ref is None:
            return None
        name = told.controller_revision_ref.name
        try:
            revision = await self._client.get(ControllerRevision, name, vm.metadata.namespace)
            return msgspec.convert(deepcopy(revision.data["spec"]), type_)
        except (NotFound, KeyError, TypeError, msgspec.ValidationError) as error:
            reason = f"FailedFind{matcher.field.capitalize()}"
            raise Refused(reason, f"controllerrevisions.apps {name!r}: {error}") from error


def _wanted(vm: VirtualMachine, matcher: Matcher) -> InstancetypeMatcher | None:
    return vm.spec.instancetype if matcher is INSTANCETYPE else vm.spec.preference


def _told(vm: VirtualMachine, matcher: Matcher) -> InstancetypeStatusRef | None:
    return vm.status.instancetype_ref if matcher is INSTANCETYPE else vm.status.preference_ref


def _tells(told: InstancetypeStatusRef | None, wanted: InstancetypeMatcher) -> bool:
    """Whether the status names a copy of what is wanted."""
    if told is None or told.controller_revision_ref is None:
        return False
    if wanted.revision_name not in ("", told.controller_revision_ref.name):
        return False
    return (told.name, told.kind) == (wanted.name, wanted.kind)


def _spellings(matcher: Matcher) -> tuple[str, ...]:
    return ("", matcher.of_cluster.singular, matcher.of_cluster.plural)
