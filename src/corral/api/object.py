"""Objects: documents and views, and the metadata that all share.

A *document* is the JSON object as it is stored and sent, with all fields of the client.  A *view*
is a typed Struct decoded from a document, for controllers.  They write by patch, so a field that
the view lacks is not lost.
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
"""An object whose fields are not in the schema, and kept as they are."""


class Struct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an object: snake_case here, camelCase on the wire.

    A field without a default is required.  Lines ``field: text`` in the docstring of a subclass
    describe its fields in OpenAPI, hence in ``kubectl explain``.
    """


class OwnerReference(Struct, kw_only=True):
    """A reference to the owner of an object (meta/v1 OwnerReference).

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
    """A condition of an object, in KubeVirt's form.

    type: the name of the condition.
    status: True, False or Unknown.
    last_probe_time: when it was last checked.
    last_transition_time: when the status last changed.
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
    """The namespace and the name of an object; the namespace is "" if it is cluster-scoped."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(Struct, kw_only=True):
    """The view of an object; subclasses add ``spec`` and ``status``."""

    api_version: ClassVar[str]
    kind: ClassVar[str]

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)
