"""Who may copy claims of other namespaces (CDI's and KubeVirt's authorization of clones).

A claim's content is more than its object: who wants to copy it into another namespace needs the
verb ``create`` on ``datavolumes/source`` where it is, or on pods, which could read it as well.
Machines' DataVolumes are made by a component that may copy anything, so it is asked of who writes
the machine, or of the ServiceAccount ``default`` beside it.  What a claim itself says that it is
filled from is nobody's to say but theirs, who have asked.
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
from corral.server.authz import Attributes, Authorizer, components
from corral.server.request.call import Call, Guard, Prepare, storage
from corral.store import Store

_WEBHOOK: Final = "datavolume-mutate.cdi.kubevirt.io"
_MACHINES: Final = {
    VIRTUAL_MACHINE.plural: ("spec",),
    POOL.plural: ("spec", "virtualMachineTemplate", "spec"),
}
"""Where the spec of a VirtualMachine is, in the objects of each kind."""
_TEMPLATES: Final = "dataVolumeTemplates"


class _Source(NamedTuple):
    """A claim, or a DataSource that is yet to come, in another namespace."""

    field: str
    key: Key


class Clones:
    """Checks who writes what copies claims."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """What checks each kind, by the name that it is stored under."""
        return {
            storage(CLAIM): _claim,
            storage(DATA_VOLUME): self._volume,
            storage(DATA_SOURCE): self._volume,
            storage(VIRTUAL_MACHINE): self._machine,
            storage(POOL): self._machine,
        }

    def preparers(self) -> dict[str, Prepare]:
        """What writes down what is allowed, in objects of each kind."""
        return {
            storage(DATA_VOLUME): self._record,
            storage(VIRTUAL_MACHINE): self._before_inference,
            storage(POOL): self._record,
        }

    def _before_inference(self, call: Call, document: Document, old: Document | None) -> None:
        """Ask before a volume is looked up for what suits it: that tells whether there is one.

        Of all templates, also of those that were asked about when somebody else wrote them, and of
        DataVolumes that others have made.  Raises Invalid.
        """
        if _inferred(call.kind, document):
            sources = (
                *self._of_templates(call, document, known=()),
                *self._of_stored_volumes(call, document),
            )
            self._ask(call, document, old, sources)
        self._record(call, document, old)

    def _record(self, call: Call, document: Document, old: Document | None) -> None:
        """Write down what may be copied by the DataSources that are named.

        What was written as it is was asked of its author then.  A controller hands on what the
        author was allowed of what it makes an object for, and is not asked itself: it may copy
        anything.
        """
        by_controller = _is_controller(call)
        before = permitted_clones.record_of(document if by_controller else old)
        known = [_said(each) for each in _volumes(call.kind, old)]
        users = [] if by_controller else [call.user]
        if by_controller or call.kind is not DATA_VOLUME:
            users.append(_account(call))
        record = dict(before) if by_controller else {}
        for volume in _volumes(call.kind, document):
            name = str(_reference(call.namespace, volume) or "")
            if _said(volume) in known:
                record |= {name: before[name]} if name in before else {}
            else:
                source = self._of_reference(call.namespace, volume)
                if source and (allowed := self._allowed(call, users, source.key)):
                    record[name] = str(allowed)
        permitted_clones.write(document, record)

    def _allowed(self, call: Call, users: Iterable[User], claim: Key) -> Key | None:
        """What somebody may copy who wants a claim: all of its namespace, or it alone.

        A golden image is renewed by a claim of another name, which is to need no new machines.
        """
        every = Key(claim.namespace, "")
        if any(self._may(call, user, every) for user in users):
            return Key(claim.namespace, permitted_clones.ANY)
        return claim if any(self._may(call, user, claim) for user in users) else None

    def _volume(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Invalid."""
        if old is not None and _said(document) == _said(old):
            return
        for source in self._of_volume(call.kind, call.namespace, document):
            if not self._may(call, call.user, source.key):
                cause = Cause(source.field, _refusal(call.user.name, source.key))
                message = f'admission webhook "{_WEBHOOK}" denied the request: {cause.message}'
                raise Invalid(message, details=Details(causes=(cause,)))

    def _machine(self, call: Call, document: Document, old: Document | None) -> None:
        """Raises Invalid."""
        known = [_said(template) for template in _volumes(call.kind, old)]
        sources = list(self._of_templates(call, document, known))
        path = _MACHINES[call.kind.plural]
        if _inferred(call.kind, document) and at(document, *path) != at(old, *path):
            # A pool's VirtualMachines are made by a controller, which may look up anything.
            sources += self._of_stored_volumes(call, document)
        self._ask(call, document, old, sources)

    def _ask(
        self, call: Call, document: Document, old: Document | None, sources: Iterable[_Source]
    ) -> None:
        """Raises Invalid."""
        account = _account(call)
        causes = [
            Cause(source.field, f"Authorization failed, message is: {why}")
            for source in sources
            if not self._may(call, call.user, source.key)
            and not self._may(call, account, source.key)
            and (why := _refusal(call.user.name, source.key))
        ]
        if causes:
            name = document["metadata"].get("name", "")
            raise call.kind.denied(name, causes, creating=old is None)

    def _of_templates(
        self, call: Call, document: Document, known: Container[Document]
    ) -> Iterator[_Source]:
        """What the templates copy that are not as they were."""
        where = ".".join((*_MACHINES[call.kind.plural], _TEMPLATES))
        for index, template in enumerate(_volumes(call.kind, document)):
            if _said(template) in known:
                continue
            for source in self._of_volume(DATA_VOLUME, call.namespace, template):
                yield _Source(f"{where}[{index}]", source.key)

    def _of_stored_volumes(self, call: Call, document: Document) -> Iterator[_Source]:
        """What the DataVolumes copy that are there already and are looked up for what suits them.

        Their author was asked, who writes the machine was not.
        """
        path = _MACHINES[call.kind.plural]
        inferred = _inferred(call.kind, document)
        templates = {at(each, "metadata", "name") for each in _volumes(call.kind, document)}
        volumes = at(document, *path, "template", "spec", "volumes") or ()
        for index, volume in enumerate(volumes):
            name = at(volume, "dataVolume", "name")
            if volume["name"] not in inferred or not name or name in templates:
                continue
            record = self._store.latest(storage(DATA_VOLUME), Key(call.namespace, name))
            if record is not None:
                where = ".".join((*path, f"template.spec.volumes[{index}].dataVolume.name"))
                for source in self._of_volume(DATA_VOLUME, call.namespace, record.document()):
                    yield _Source(where, source.key)

    def _of_volume(self, kind: Kind, namespace: str, document: Document) -> Iterator[_Source]:
        """What is copied from another namespace, also where that is told by a DataSource.

        What says both is refused, but later: not before what suits it was looked up.
        """
        if source := self._of_source(namespace, document):
            yield source
        if kind is DATA_VOLUME and (source := self._of_reference(namespace, document)):
            yield source

    def _of_source(self, namespace: str, document: Document) -> _Source | None:
        """What a document's own ``source`` says of another namespace."""
        claim, field = at(document, "spec", "source", "pvc"), "spec.source.PVC.namespace"
        if not claim and (other := at(document, "spec", "source", "dataSource", "name")):
            field = "spec.source.dataSource.name"
            claim = at(self._source(Key(namespace, other)), "pvc")
        return _elsewhere(field, claim, namespace, namespace) if claim else None

    def _of_reference(self, namespace: str, document: Document) -> _Source | None:
        """What the DataSource that a DataVolume names says of another namespace.

        One that says nothing yet may come to mean any claim beside it: it stands for itself.
        """
        named = _reference(namespace, document)
        if named is None:
            return None
        source = self._source(named)
        if other := at(source, "dataSource", "name"):
            source = self._source(Key(named.namespace, other))
        claim = at(source, "pvc") or {"name": named.name}
        return _elsewhere("spec.sourceRef.namespace", claim, named.namespace, namespace)

    def _source(self, key: Key) -> Document | None:
        """What a DataSource says that it means."""
        record = self._store.latest(storage(DATA_SOURCE), key)
        return at(record.document(), "spec", "source") if record is not None else None

    def _may(self, call: Call, user: User, source: Key) -> bool:
        inside = user is call.request.user
        return any(
            self._authorizer.allows(
                Attributes(user, "create", group, resource, below, source.namespace, source.name),
                inside=inside,
            )
            for group, resource, below in (
                (DATA_VOLUME.group, DATA_VOLUME.plural, "source"),
                ("", "pods", ""),
            )
        )


def _volumes(kind: Kind, document: Document | None) -> Sequence[Document]:
    """A DataVolume, or the templates of those that are made for an object of another kind."""
    if kind is DATA_VOLUME:
        return [document] if document is not None else []
    return at(document, *_MACHINES[kind.plural], _TEMPLATES) or ()


def _inferred(kind: Kind, document: Document) -> frozenset[str]:
    """The volumes that are looked up for what suits them."""
    path = _MACHINES[kind.plural]
    names = (at(document, *path, matcher.field, "inferFromVolume") for matcher in MATCHERS)
    return frozenset(name for name in names if name)


def _elsewhere(field: str, claim: Document, within: str, namespace: str) -> _Source | None:
    """A claim of another namespace than ``namespace``; ``within`` is its own unless it says one."""
    key = Key(claim.get("namespace") or within, claim.get("name") or "")
    return _Source(field, key) if key.namespace != namespace else None


def _reference(namespace: str, document: Document) -> Key | None:
    """The DataSource that a DataVolume names."""
    named = at(document, "spec", "sourceRef")
    return Key(named.get("namespace") or namespace, named.get("name") or "") if named else None


def _account(call: Call) -> User:
    """The ServiceAccount beside a machine."""
    return User(name=user_name(call.namespace, "default"))


def _said(document: Document) -> Document:
    """What a DataVolume, a template of one or a DataSource says itself that it copies.

    What that leads to may have changed since somebody was asked about it.
    """
    spec = at(document, "spec")
    return {
        "name": at(document, "metadata", "name"),
        "source": at(spec, "source"),
        "sourceRef": at(spec, "sourceRef"),
    }


def _claim(call: Call, document: Document, old: Document | None) -> None:
    """Raises Invalid where somebody but who makes DataVolumes' claims asks for content."""
    wish = _wish(document)
    if wish is None or wish == _wish(old or {}) or _is_controller(call):
        return
    message = (
        "Forbidden: only corral sets this annotation: leave it out; to have a claim filled, "
        "create a DataVolume, which makes the claim"
    )
    cause = Cause(f"metadata.annotations[{population.POPULATE}]", message, "FieldValueForbidden")
    raise call.kind.invalid(document["metadata"]["name"], [cause])


def _wish(claim: Document) -> str | None:
    wish: str | None = at(claim, "metadata", "annotations", population.POPULATE)
    return wish


def _is_controller(call: Call) -> bool:
    """Whether it is who makes DataVolumes of machines, and claims of DataVolumes."""
    return call.user is call.request.user and components.is_controller(call.user)


def _refusal(user: str, source: Key) -> str:
    return f"User {user} has insufficient permissions in clone source namespace {source.namespace}"
