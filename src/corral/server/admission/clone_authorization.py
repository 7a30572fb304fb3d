"""Authorization of clones of PVCs into other namespaces, as CDI and KubeVirt have it.

To clone a PVC, a user needs the verb ``create`` on ``datavolumes/source`` in the PVC's namespace,
or on pods there, which could read the content as well.  The DataVolumes of VirtualMachines and
pools are created by a controller with all rights, so these rights are required of the author of the
VirtualMachine or pool, or of the ServiceAccount ``default`` in its namespace.  The annotation that
says how a PVC is populated may be set by controllers only, which check DataVolumes before.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from corral.api.errors import Cause, Details, Invalid
from corral.api.instancetypes.matchers import MATCHERS
from corral.api.kind import Kind, at
from corral.api.kinds.cdi import permitted_clones, population
from corral.api.kinds.cdi.kinds import DATA_SOURCE, DATA_VOLUME
from corral.api.kinds.kubevirt.kinds import POOL, VIRTUAL_MACHINE
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.object import Document, Key
from corral.api.request import User
from corral.server.authn.service_accounts import user_name
from corral.server.authz import Attributes, components
from corral.server.authz.authorizer import Rights
from corral.server.request.call import Call, Guard, Prepare, storage
from corral.store import Objects

_WEBHOOK: Final = "datavolume-mutate.cdi.kubevirt.io"
_VM_SPEC_PATHS: Final = {
    VIRTUAL_MACHINE.plural: ("spec",),
    POOL.plural: ("spec", "virtualMachineTemplate", "spec"),
}
"""Paths to the spec of a VirtualMachine, in the objects of each kind."""
_TEMPLATES: Final = "dataVolumeTemplates"


class _Source(NamedTuple):
    """A PVC in another namespace, or a DataSource there that does not resolve yet."""

    field: str
    key: Key


class CloneAuthorization:
    """The admission plugin of objects that clone PVCs."""

    def __init__(self, store: Objects, authorizer: Rights) -> None:
        self._store = store
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """Return the guards, by the resource name of the stored kind."""
        return {
            storage(CLAIM): _check_claim,
            storage(DATA_VOLUME): self._check_data_volume,
            storage(DATA_SOURCE): self._check_data_volume,
            storage(VIRTUAL_MACHINE): self._check_vm,
            storage(POOL): self._check_vm,
        }

    def preparers(self) -> dict[str, Prepare]:
        """Return the preparers, by the resource name of the stored kind."""
        return {
            storage(DATA_VOLUME): self._record_permitted,
            storage(VIRTUAL_MACHINE): self._before_inference,
            storage(POOL): self._record_permitted,
        }

    def _before_inference(self, call: Call, document: Document, old: Document | None) -> None:
        """Check rights before inference reads labels of a volume: its result reveals PVCs.

        That includes unchanged templates, which another user may have written, and DataVolumes that
        others have created.  Raises Invalid.
        """
        if _inference_volumes(call.kind, document):
            sources = (
                *self._template_sources(call, document, unchanged=()),
                *self._stored_volume_sources(call, document),
            )
            self._require_rights(call, document, old, sources)
        self._record_permitted(call, document, old)

    def _record_permitted(self, call: Call, document: Document, old: Document | None) -> None:
        """Record which PVCs may be cloned through the DataSources that are referenced.

        Unchanged references keep their record: their author's rights were checked then.  A
        controller passes on the record of the object for which it creates another; its own rights
        do not count, as it has all.
        """
        by_controller = _is_controller(call)
        before = permitted_clones.record_of(document if by_controller else old)
        unchanged = [_source_fields(each) for each in _data_volumes(call.kind, old)]
        users = [] if by_controller else [call.user]
        if by_controller or call.kind is not DATA_VOLUME:
            users.append(_account(call))
        record = dict(before) if by_controller else {}
        for volume in _data_volumes(call.kind, document):
            name = str(_reference(call.namespace, volume) or "")
            if _source_fields(volume) in unchanged:
                record |= {name: before[name]} if name in before else {}
            else:
                source = self._referenced_source(call.namespace, volume)
                if source and (allowed := self._allowed(call, users, source.key)):
                    record[name] = str(allowed)
        permitted_clones.write(document, record)

    def _allowed(self, call: Call, users: Iterable[User], claim: Key) -> Key | None:
        """Return what any of the users may clone: all PVCs of a namespace, a single one, or None.

        All, because a golden image is renewed by a PVC of another name, which existing
        VirtualMachines may clone as well.
        """
        every = Key(claim.namespace, "")
        if any(self._is_allowed(call, user, every) for user in users):
            return Key(claim.namespace, permitted_clones.ANY)
        return claim if any(self._is_allowed(call, user, claim) for user in users) else None

    def _check_data_volume(self, call: Call, document: Document, old: Document | None) -> None:
        """Check the writer of a DataVolume or DataSource.  Raises Invalid."""
        if old is not None and _source_fields(document) == _source_fields(old):
            return
        for source in self._sources_of(call.kind, call.namespace, document):
            if not self._is_allowed(call, call.user, source.key):
                cause = Cause(source.field, _refusal(call.user.name, source.key))
                message = f'admission webhook "{_WEBHOOK}" denied the request: {cause.message}'
                raise Invalid(message, details=Details(causes=(cause,)))

    def _check_vm(self, call: Call, document: Document, old: Document | None) -> None:
        """Check the writer of a VirtualMachine or pool.  Raises Invalid."""
        unchanged = [_source_fields(template) for template in _data_volumes(call.kind, old)]
        sources = list(self._template_sources(call, document, unchanged))
        path = _VM_SPEC_PATHS[call.kind.plural]
        if _inference_volumes(call.kind, document) and at(document, *path) != at(old, *path):
            # A pool's VirtualMachines are created by a controller, which may infer from any volume.
            sources += self._stored_volume_sources(call, document)
        self._require_rights(call, document, old, sources)

    def _require_rights(
        self, call: Call, document: Document, old: Document | None, sources: Iterable[_Source]
    ) -> None:
        """Check the rights to clone some sources, of the user or the account.  Raises Invalid."""
        account = _account(call)
        causes = [
            Cause(source.field, f"Authorization failed, message is: {why}")
            for source in sources
            if not self._is_allowed(call, call.user, source.key)
            and not self._is_allowed(call, account, source.key)
            and (why := _refusal(call.user.name, source.key))
        ]
        if causes:
            name = document["metadata"].get("name", "")
            raise call.kind.denied(name, causes, creating=old is None)

    def _template_sources(
        self, call: Call, document: Document, unchanged: Container[Document]
    ) -> Iterator[_Source]:
        """Yield the sources of templates, except unchanged ones."""
        field = ".".join((*_VM_SPEC_PATHS[call.kind.plural], _TEMPLATES))
        for index, template in enumerate(_data_volumes(call.kind, document)):
            if _source_fields(template) in unchanged:
                continue
            for source in self._sources_of(DATA_VOLUME, call.namespace, template):
                yield _Source(f"{field}[{index}]", source.key)

    def _stored_volume_sources(self, call: Call, document: Document) -> Iterator[_Source]:
        """Yield the sources of existing DataVolumes from which an instance type is inferred.

        The rights of their author were checked, but not those of the VirtualMachine's.
        """
        path = _VM_SPEC_PATHS[call.kind.plural]
        inferred = _inference_volumes(call.kind, document)
        templates = {at(each, "metadata", "name") for each in _data_volumes(call.kind, document)}
        volumes = at(document, *path, "template", "spec", "volumes") or ()
        for index, volume in enumerate(volumes):
            name = at(volume, "dataVolume", "name")
            if volume["name"] not in inferred or not name or name in templates:
                continue
            record = self._store.latest(storage(DATA_VOLUME), Key(call.namespace, name))
            if record is not None:
                field = ".".join((*path, f"template.spec.volumes[{index}].dataVolume.name"))
                for source in self._sources_of(DATA_VOLUME, call.namespace, record.document()):
                    yield _Source(field, source.key)

    def _sources_of(self, kind: Kind, namespace: str, document: Document) -> Iterator[_Source]:
        """Yield the sources in other namespaces, also those to which a DataSource resolves.

        An object with ``source`` and ``sourceRef`` is invalid, but inference comes before
        validation.
        """
        if source := self._direct_source(namespace, document):
            yield source
        if kind is DATA_VOLUME and (source := self._referenced_source(namespace, document)):
            yield source

    def _direct_source(self, namespace: str, document: Document) -> _Source | None:
        """Return the source in another namespace in ``spec.source``, or None."""
        claim, field = at(document, "spec", "source", "pvc"), "spec.source.PVC.namespace"
        if not claim and (other := at(document, "spec", "source", "dataSource", "name")):
            field = "spec.source.dataSource.name"
            claim = at(self._data_source(Key(namespace, other)), "pvc")
        return _in_other_namespace(field, claim, namespace, namespace) if claim else None

    def _referenced_source(self, namespace: str, document: Document) -> _Source | None:
        """Return the source in another namespace to which ``spec.sourceRef`` resolves, or None.

        A DataSource without a source may get any PVC of its namespace later, so the result is the
        DataSource's own key.
        """
        reference = _reference(namespace, document)
        if reference is None:
            return None
        source = self._data_source(reference)
        if other := at(source, "dataSource", "name"):
            source = self._data_source(Key(reference.namespace, other))
        claim = at(source, "pvc") or {"name": reference.name}
        return _in_other_namespace(
            "spec.sourceRef.namespace", claim, reference.namespace, namespace
        )

    def _data_source(self, key: Key) -> Document | None:
        """Return ``spec.source`` of a DataSource; None if there is none."""
        record = self._store.latest(storage(DATA_SOURCE), key)
        return at(record.document(), "spec", "source") if record is not None else None

    def _is_allowed(self, call: Call, user: User, source: Key) -> bool:
        """Return whether a user may clone a PVC, or all of a namespace for a key without a name."""
        is_component = call.request.is_component(user)
        return any(
            self._authorizer.allows(
                Attributes(
                    user, "create", group, resource, subresource, source.namespace, source.name
                ),
                is_component=is_component,
            )
            for group, resource, subresource in (
                (DATA_VOLUME.group, DATA_VOLUME.plural, "source"),
                ("", "pods", ""),
            )
        )


def _data_volumes(kind: Kind, document: Document | None) -> Sequence[Document]:
    """Return a DataVolume, or the DataVolume templates of an object of another kind."""
    if kind is DATA_VOLUME:
        return [document] if document is not None else []
    return at(document, *_VM_SPEC_PATHS[kind.plural], _TEMPLATES) or ()


def _inference_volumes(kind: Kind, document: Document) -> frozenset[str]:
    """Return the volumes from which an instance type or preference is inferred."""
    path = _VM_SPEC_PATHS[kind.plural]
    names = (at(document, *path, matcher.field, "inferFromVolume") for matcher in MATCHERS)
    return frozenset(name for name in names if name)


def _in_other_namespace(
    field: str, claim: Document, default_namespace: str, namespace: str
) -> _Source | None:
    """Return a PVC as source, unless it is in ``namespace``."""
    key = Key(claim.get("namespace") or default_namespace, claim.get("name") or "")
    return _Source(field, key) if key.namespace != namespace else None


def _reference(namespace: str, document: Document) -> Key | None:
    """Return the DataSource in ``spec.sourceRef`` of a DataVolume, or None."""
    reference = at(document, "spec", "sourceRef")
    return (
        Key(reference.get("namespace") or namespace, reference.get("name") or "")
        if reference
        else None
    )


def _account(call: Call) -> User:
    """Return the user of the ServiceAccount ``default`` in a call's namespace."""
    return User(name=user_name(call.namespace, "default"))


def _source_fields(document: Document) -> Document:
    """Return the name and source fields of a DataVolume, a template of one, or a DataSource.

    What they resolve to may change without a change of these.
    """
    spec = at(document, "spec")
    return {
        "name": at(document, "metadata", "name"),
        "source": at(spec, "source"),
        "sourceRef": at(spec, "sourceRef"),
    }


def _check_claim(call: Call, document: Document, old: Document | None) -> None:
    """Reject changes of the populate annotation by others than controllers.  Raises Invalid."""
    annotation = _populate_annotation(document)
    if annotation is None or annotation == _populate_annotation(old or {}) or _is_controller(call):
        return
    message = (
        "Forbidden: only corral sets this annotation: leave it out; to populate a claim, "
        "create a DataVolume, which creates the claim"
    )
    cause = Cause(f"metadata.annotations[{population.POPULATE}]", message, "FieldValueForbidden")
    raise call.kind.invalid(document["metadata"]["name"], [cause])


def _populate_annotation(claim: Document) -> str | None:
    annotation: str | None = at(claim, "metadata", "annotations", population.POPULATE)
    return annotation


def _is_controller(call: Call) -> bool:
    """Return whether a call is by a controller of this process."""
    return call.is_by_component and components.is_controller(call.user)


def _refusal(user: str, source: Key) -> str:
    return f"User {user} has insufficient permissions in clone source namespace {source.namespace}"
