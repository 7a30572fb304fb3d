"""Kinds: the rows of the table ``corral.api.kinds.KINDS``.

Discovery, routing, validation, defaulting, printing and OpenAPI are driven by these rows; the verbs
are implemented once, for every kind.
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
"""The verbs of stored objects."""
MAX_DENIED_CAUSES = 10
"""Causes that a webhook's message lists; of more it has the number only (KubeVirt)."""


class GroupVersion(NamedTuple):
    """An API group and one of its versions; the core group is the empty string."""

    group: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a kind.

    warning: replaces the usual warning about a deprecated version.
    served: false for a version that is only stored.
    view: the source of this version's schema, if it differs from that of the stored version.
        Requests are validated against it before ``read``.
    read: converts a document of this version to the stored one; may only lose fields that have no
        meaning any more.
    write: converts a stored document to this version; without it only ``apiVersion`` changes, as in
        a CRD with conversion ``None``.
    spell: restores values in responses as the client spelled them, if the version has no ``write``.

    The functions change the document in place, and leave ``apiVersion`` to the server.
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
    """A column of the server-side Table.

    cell: returns a string, an integer or None (printed blank) for a document.
    type: a cell of type ``date`` is a time in RFC 3339, which is printed as an age (``13s``).
    priority: above 0 the column is shown with ``-o wide`` only.
    absent: replaces a missing time; the default depends on the kind.
    json_path: the JSONPath of the cell, for a CustomResourceDefinition; empty if there is none.
    """

    name: str
    cell: Callable[[Document], str | int | None]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    absent: str | None = None
    json_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Paths that the ``/scale`` subresource reads and writes (autoscaling/v1 Scale)."""

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    label_selector: tuple[str, ...] = ("status", "labelSelector")


class Webhook(NamedTuple):
    """Names of KubeVirt's webhooks that validate a kind on create and on update."""

    create: str
    update: str


@dataclass(slots=True)
class Verdict:
    """The result of validation: causes refuse a document (422), warnings go to the client."""

    causes: list[Cause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _default_nothing(_document: Document) -> None:
    pass


def _keep_nothing(_document: Document, _old: Document, _user: str) -> None:
    pass


def _accept(_document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind: how objects of a type are served and stored.

    versions: the first is the stored one.
    view: the Struct that controllers decode, and the source of the schema.
    keep: runs on update before ``default``, with the new document, the stored one and the user's
        name; restores fields whose changes are silently ignored.
    default: defaults a document in place before validation, on create and update.
    default_create: runs on create only (identities, finalizers), after the server has set its
        metadata.
    validate: checks what the schema cannot express; gets the defaulted document, the stored one on
        update (else None) and the user's name.
    native: Kubernetes' own kinds, which support strategic merge patches.
    selectable: values of field selectors, besides ``metadata.name`` and ``metadata.namespace``.
    approval: whether there is a subresource of this name (CertificateSigningRequest).
    """

    group: str
    plural: str
    versions: tuple[Version, ...]
    view: type[msgspec.Struct]
    name: str = ""
    """The default is that of the view."""
    singular: str = ""
    """The default is the name in lower case."""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = True
    approval: bool = False
    parts: tuple[str, ...] = ()
    """Subresources that are the object itself, and whose part of it can be changed there only."""
    scale: Scale | None = None
    native: bool = False
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, Callable[[Document], str]] = field(default_factory=dict)
    keep: Callable[[Document, Document, str], None] = _keep_nothing
    default: Callable[[Document], None] = _default_nothing
    default_create: Callable[[Document], None] = _default_nothing
    validate: Callable[[Document, Document | None, str], Verdict] = _accept
    default_grace_seconds: Callable[[Document], int] | None = None
    """Seconds for a deletion without ``gracePeriodSeconds``; None for no graceful deletion."""
    webhook: Webhook | None = None
    """KubeVirt's webhooks, if the kind is validated by some: gives refusals the same messages."""
    status_on_create: bool = False
    """True if the status of a create request is stored: a kubelet registers its node with one."""
    create_only: bool = False
    """True if the kind is a virtual resource with the verb create only, as reviews are
    (``ApiServer.answers``)."""
    measured_kind: tuple[str, str] | None = None
    """Group and plural of the kind that objects are measurements of (metrics.k8s.io): they have its
    names and labels, and are not stored; only get and list are served."""
    has_deletecollection: bool = True
    """True if it has the verb deletecollection."""
    name_first: bool = True
    """True if tables begin with a column of the name; events have it last, in ``columns``."""
    stored_as: tuple[str, str] | None = None
    """Group and plural of the kind that objects are stored as, if this is another representation
    (events.k8s.io): ``read`` and ``write`` of its version convert them."""
    schemas: Mapping[str, Mapping[str, Any]] | None = None
    """The structural schemas of the versions of a custom resource."""
    rows: Mapping[str, "Kind"] = field(default_factory=dict)
    """The kind of each version, if they differ in columns or subresources."""
    list_name: str = ""
    """The name of its lists, if that is not the name with ``List``."""
    closing: bool = False
    """True if create is refused, because its definition is being deleted."""
    begin_deletion: Callable[[Document, str], None] | None = None
    """Changes a document when its deletion begins, at a time (RFC 3339)."""

    def __post_init__(self) -> None:
        name = self.name or self.view.__name__
        object.__setattr__(self, "name", name)  # the row is frozen from here on
        object.__setattr__(self, "singular", self.singular or name.lower())

    @property
    def version(self) -> str:
        return self.versions[0].name

    def view_of(self, version: str) -> type[msgspec.Struct]:
        """Return the source of a version's schema."""
        return self.by_name[version].view or self.view

    @cached_property
    def by_name(self) -> Mapping[str, Version]:
        """Versions by name."""
        return {version.name: version for version in self.versions}

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        if self.create_only:
            return ("create",)
        if self.measured_kind is not None:
            return ("get", "list")
        return tuple(
            verb for verb in VERBS if self.has_deletecollection or verb != "deletecollection"
        )

    @property
    def is_kept(self) -> bool:
        """True if objects are stored under this kind."""
        return self.stored_as is None and not self.create_only and self.measured_kind is None

    @cached_property
    def status_subresources(self) -> tuple[str, ...]:
        """The subresources that change the status, and nothing else except labels."""
        return ("status",) * self.status + ("approval",) * self.approval

    @cached_property
    def updates(self) -> tuple[str, ...]:
        """The subresources that are the object itself, of which they change a part."""
        return (*self.status_subresources, *self.parts)

    @cached_property
    def api_version(self) -> str:
        return str(GroupVersion(self.group, self.version))

    @cached_property
    def served_api_version(self) -> str:
        """The ``apiVersion`` for requests: the stored one is not always served."""
        served = next(version.name for version in self.versions if version.served)
        return str(GroupVersion(self.group, served))

    @cached_property
    def resource(self) -> str:
        """The plural with its group, as in messages: ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def qualified(self) -> str:
        """The name with its group, as in messages about invalid objects."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def __repr__(self) -> str:
        return f"Kind({self.resource})"

    def invalid(self, name: str, causes: Sequence[Cause]) -> Invalid:
        """Return the error for a document with an invalid schema, metadata or native field."""
        causes = limited(causes)
        messages = [f"{cause.field}: {cause.message}" for cause in causes]
        text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        details = Details(name=name, group=self.group, kind=self.name, causes=tuple(causes))
        return Invalid(f'{self.qualified} "{name}" is invalid: {text}', details=details)

    def denied(self, name: str, causes: Sequence[Cause], *, creating: bool) -> Invalid:
        """Return the error for causes of ``validate``: that of KubeVirt's webhook, if any."""
        if self.webhook is None:
            return self.invalid(name, causes)
        webhook = self.webhook.create if creating else self.webhook.update
        first = limited(causes[:MAX_DENIED_CAUSES])
        text = ", ".join(cause.message for cause in first)
        if len(causes) > MAX_DENIED_CAUSES:
            text += f", and {len(causes) - MAX_DENIED_CAUSES} more validation errors"
        details = Details(causes=tuple(first))
        return Invalid(f'admission webhook "{webhook}" denied the request: {text}', details=details)


def at(document: Mapping[str, Any] | None, *path: str) -> Any:
    """Return the value at a path of a document; None if a step is missing."""
    value: Any = document
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
