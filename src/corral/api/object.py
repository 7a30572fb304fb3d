"""The shape that every object shares, and the two forms in which code meets an object.

A *document* is the JSON object as it is stored and sent: nothing that a client wrote is lost in it.
A *view* is a typed Struct decoded from a document: what loops read.  Loops write by patch, so a
view that does not know a field cannot destroy it.
"""

from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

Document = dict[str, Any]
"""A JSON object with ``apiVersion``, ``kind`` and ``metadata``."""

_NUMBER = r"([0-9]+(\.[0-9]*)?)|(\.[0-9]+)"
QUANTITY_PATTERN = rf"^(\+|-)?({_NUMBER})(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?({_NUMBER})))?$"

Quantity = Annotated[
    str | int,
    msgspec.Meta(
        extra_json_schema={"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN},
    ),
]
"""An amount such as ``64M``, ``1Gi``, ``500m`` or ``2``: see ``corral.api.quantity``."""

IntOrString = Annotated[
    int | str, msgspec.Meta(extra_json_schema={"x-kubernetes-int-or-string": True})
]
"""A port number or a port name; a count or a percentage."""

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""A moment in RFC 3339, UTC, whole seconds: ``2024-01-31T12:00:00Z``."""

AnyFields = Annotated[
    dict[str, Any],
    msgspec.Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True}),
]
"""An object whose fields the schema does not name and keeps as they are."""


class Struct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A piece of an object, spelled snake_case here and camelCase on the wire.

    A field without a default is required.  Lines ``field: text`` in the docstring of a subclass
    describe its fields in the served OpenAPI, hence in ``kubectl explain``.
    """


class OwnerReference(Struct, kw_only=True):
    """Names the object on whose account this one exists.

    controller: true when the owner is the one that manages this object.
    block_owner_deletion: true when a foreground deletion of the owner waits for this object.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct, kw_only=True):
    """Kubernetes' metadata of an object (meta/v1 ObjectMeta)."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    managed_fields: list[AnyFields] = []


class Condition(Struct, kw_only=True):
    """One thing that is known about an object (KubeVirt's condition form).

    type: what is known.
    status: True, False or Unknown.
    last_probe_time: when it was last looked at.
    last_transition_time: when the status became what it is.
    reason: why, in one word.
    message: why, for people.
    """

    type: str
    status: str
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class Key(NamedTuple):
    """Where an object stands among its kind; the namespace of cluster-wide objects is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(Struct, kw_only=True):
    """The view of anything with an address; subclasses add ``spec`` and ``status``."""

    api_version: ClassVar[str]
    kind: ClassVar[str]

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)
