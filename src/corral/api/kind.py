"""What the server must know of a kind: one row of the table ``corral.api.kinds.KINDS``.

Discovery, routing, validation, defaulting, printing and OpenAPI are all driven by these rows; the
verbs are implemented once, for every kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from corral.api.errors import Cause, Details, Invalid, limited
from corral.api.object import Document

VERBS = (
    *("create", "delete", "deletecollection", "get"),
    *("list", "patch", "update", "watch"),
)
"""What can be done with objects that are kept."""
MOST_TOLD = 10
"""Causes that a webhook's refusal names; of more it tells the number only (KubeVirt)."""


class GroupVersion(NamedTuple):
    """An API group and one of its versions; the core group is the empty string."""

    group: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One served version of a kind.

    ``read`` turns a document of this version, as a client sent it, into the stored version's form;
    it may be lossy only where the field is meaningless today.  ``write`` turns a stored document
    into this version's form; without it only ``apiVersion`` changes, as a CRD with conversion
    ``None`` does.  ``spell`` gives back to a document that is shown the words in which it was sent,
    where the form is the same.  All change the document in place and leave ``apiVersion`` to the
    server.
    ``view`` is the source of this version's schema where it is not that of the stored one: what is
    sent is checked against it before it is read.  ``warning`` is what those are told who ask for a
    deprecated version, where it is not the usual words.  What is not ``served`` lies in the store
    only.
    """

    name: str
    deprecated: bool = False
    warning: str = ""
    served: bool = True
    view: type[msgspec.Struct] | None = None
    read: Callable[[Document], None] | None = None
    write: Callable[[Document], None] | None = None
    spell: Callable[[Document], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the server-side Table.

    ``cell`` gets the document and answers a string, an integer or None (printed blank).
    A priority above 0 is shown with ``-o wide`` only.  With type ``date`` the cell is a time in
    RFC 3339, which the server turns into how long ago that is (``13s``, ``5d``) when it answers.
    """

    name: str
    cell: Callable[[Document], str | int | None]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    absent: str | None = None
    """What stands in place of a time that is missing; else what its kind's dialect says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Paths that the ``/scale`` subresource reads and writes (autoscaling/v1 Scale)."""

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    label_selector: tuple[str, ...] = ("status", "labelSelector")


class Webhook(NamedTuple):
    """Names of the webhooks by which KubeVirt checks a kind when it is created and updated."""

    create: str
    update: str


@dataclass(slots=True)
class Verdict:
    """What admission says of a document: causes refuse it (422), warnings are told."""

    causes: list[Cause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _nothing(_document: Document) -> None:
    """Default nothing."""


def _keep_nothing(_document: Document, _old: Document, _user: str) -> None:
    """Let an update change everything."""


def _accept(_document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How one type of object is served.

    ``versions[0]`` is the stored one.  ``view`` is the Struct that loops read, and the source of
    the schema.  ``default`` completes a document in place before it is validated, on create and
    update; ``default_create`` runs on create only (identities, finalizers), when the server has set
    the metadata that it owns; ``keep`` runs on update only, before ``default``: it gets the new
    document, the stored one and the user's name, and puts back what that user's changes to are
    silently undone.  ``validate`` gets the
    completed document, the stored one on update (else None) and the user's name; it adds what the
    schema cannot say.  ``native`` kinds are Kubernetes' own: strategic merge patches are read,
    unlike for kinds that a CRD brings.  ``selectable`` maps field selectors to the value in a
    document, beside ``metadata.name`` and ``metadata.namespace``, which always work.
    ``approval`` is a second door to the status, for who decides and does not act.
    """

    group: str
    plural: str
    versions: tuple[Version, ...]
    view: type[msgspec.Struct]
    name: str = ""
    """That of the view, where it is not given."""
    singular: str = ""
    """The name in lower case, where it is not given."""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = True
    approval: bool = False
    parts: tuple[str, ...] = ()
    """Subresources that are the object itself, of which a part can be changed there only."""
    scale: Scale | None = None
    native: bool = False
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, Callable[[Document], str]] = field(default_factory=dict)
    keep: Callable[[Document, Document, str], None] = _keep_nothing
    default: Callable[[Document], None] = _nothing
    default_create: Callable[[Document], None] = _nothing
    validate: Callable[[Document, Document | None, str], Verdict] = _accept
    default_grace_seconds: Callable[[Document], int] | None = None
    """Set for kinds that are deleted gracefully (pods): seconds for a deletion that names none."""
    webhook: Webhook | None = None
    """Set for kinds that KubeVirt checks in webhooks: refusals by ``validate`` are worded as
    theirs."""
    status_on_create: bool = False
    """Whether the status that is sent on create is kept: a kubelet registers its node with it."""
    only_created: bool = False
    """Whether objects of it are questions that are answered, and never kept: only create is served
    (``ApiServer.answers``)."""
    observes: tuple[str, str] | None = None
    """Group and plural of the kind whose objects these tell of: they bear names and labels of
    theirs, are answers of the moment, and never kept; only get and list are served."""
    sweeps: bool = True
    """Whether a whole collection of it can be deleted at once."""
    name_first: bool = True
    """Whether tables begin with a column for the name; events name it last, in ``columns``."""
    stored_as: tuple[str, str] | None = None
    """Group and plural of the kind under which objects are stored, where this kind is only another
    form of them (events.k8s.io): its version's ``read`` and ``write`` turn one into the other."""
    schemas: Mapping[str, Mapping[str, Any]] | None = None
    """The structural schemas of its versions, where they are not told by views: of kinds that a
    CustomResourceDefinition brings."""
    rows: Mapping[str, "Kind"] = field(default_factory=dict)
    """The kind as each of its versions is served, where they differ in columns or subresources."""
    list_name: str = ""
    """What lists of it are called, where that is not its name with ``List`` behind it."""
    closing: bool = False
    """Whether no more objects of it can be made: its definition is being deleted."""
    begin_deletion: Callable[[Document, str], None] | None = None
    """What is done to a document when its deletion begins, at the given time (RFC 3339)."""

    def __post_init__(self) -> None:
        name = self.name or self.view.__name__
        object.__setattr__(self, "name", name)  # the row is frozen from here on
        object.__setattr__(self, "singular", self.singular or name.lower())

    @property
    def version(self) -> str:
        return self.versions[0].name

    def view_of(self, version: str) -> type[msgspec.Struct]:
        """The source of the schema of a version that is served."""
        return self.by_name[version].view or self.view

    @cached_property
    def by_name(self) -> Mapping[str, Version]:
        """Its versions by their names."""
        return {version.name: version for version in self.versions}

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """What can be done with its objects."""
        if self.only_created:
            return ("create",)
        if self.observes is not None:
            return ("get", "list")
        return tuple(verb for verb in VERBS if self.sweeps or verb != "deletecollection")

    @property
    def is_kept(self) -> bool:
        """Whether there is a storage of its own, with its objects in it."""
        return self.stored_as is None and not self.only_created and self.observes is None

    @cached_property
    def doors(self) -> tuple[str, ...]:
        """The subresources by which its status is changed, and nothing else of it but labels."""
        return ("status",) * self.status + ("approval",) * self.approval

    @cached_property
    def updates(self) -> tuple[str, ...]:
        """The subresources by which an object is read and changed like itself, but in part."""
        return (*self.doors, *self.parts)

    @cached_property
    def api_version(self) -> str:
        return str(GroupVersion(self.group, self.version))

    @cached_property
    def asked_version(self) -> str:
        """The ``apiVersion`` by which to ask for it: the stored one is not always served."""
        served = next(version.name for version in self.versions if version.served)
        return str(GroupVersion(self.group, served))

    @cached_property
    def resource(self) -> str:
        """The plural with its group, as messages name it: ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def qualified(self) -> str:
        """The name with its group, as messages about invalid objects name it."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def __repr__(self) -> str:
        return f"Kind({self.resource})"

    def invalid(self, name: str, causes: Sequence[Cause]) -> Invalid:
        """The refusal of a document whose schema, metadata or native rules are broken."""
        causes = limited(causes)
        told = [f"{cause.field}: {cause.message}" for cause in causes]
        whole = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        details = Details(name=name, group=self.group, kind=self.name, causes=tuple(causes))
        return Invalid(f'{self.qualified} "{name}" is invalid: {whole}', details=details)

    def denied(self, name: str, causes: Sequence[Cause], *, creating: bool) -> Invalid:
        """The refusal by ``validate``: in the words of KubeVirt's webhook where there is one."""
        if self.webhook is None:
            return self.invalid(name, causes)
        webhook = self.webhook.create if creating else self.webhook.update
        first = limited(causes[:MOST_TOLD])
        told = ", ".join(cause.message for cause in first)
        if len(causes) > MOST_TOLD:
            told += f", and {len(causes) - MOST_TOLD} more validation errors"
        details = Details(causes=tuple(first))
        return Invalid(f'admission webhook "{webhook}" denied the request: {told}', details=details)


def at(document: Mapping[str, Any] | None, *path: str) -> Any:
    """The value at a path of a document, or None where any step is missing."""
    value: Any = document
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
