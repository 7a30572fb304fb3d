"""CustomResourceDefinition: a kind that users bring (apiextensions.k8s.io/v1)."""

from typing import Annotated, Any, ClassVar, Final

import msgspec

from corral.api.kinds.columns import created_at
from corral.api.kinds.crd import defaults, lifecycle, validation
from corral.api.kinds.crd.well_known import GROUP, KIND, PLURAL
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import AnyFields, Condition, Object, Struct

JSONSchema = Annotated[
    dict[str, Any],
    msgspec.Meta(
        extra_json_schema={"x-kubernetes-preserve-unknown-fields": True, "format": "json-schema"}
    ),
]
"""A schema in OpenAPI's words: it may hold others, to any depth."""


class DefinitionNames(Struct, kw_only=True):
    """What objects of a kind are called in paths, documents and commands.

    plural: the name in paths, all lower case; the definition is called <plural>.<group>.
    singular: the name of one object on the command line; the kind in lower case if it is left out.
    kind: the name in documents, in CamelCase.
    list_kind: the name of lists; the kind with List behind it if it is left out.
    short_names: abbreviations that kubectl knows, all lower case.
    categories: groups of kinds that kubectl lists together, such as all.
    """

    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class DefinitionSchema(Struct, kw_only=True):
    """How objects of a version are pruned, defaulted and checked.

    open_apiv3_schema: the structural schema, in OpenAPI v3.
    """

    open_apiv3_schema: JSONSchema | None = msgspec.field(default=None, name="openAPIV3Schema")


class DefinitionScale(Struct, kw_only=True):
    """Where the scale subresource reads and writes.

    spec_replicas_path: how many are wanted: a path under .spec.
    status_replicas_path: how many there are: a path under .status.
    label_selector_path: which pods are meant, as text: a path under .status or .spec.
    """

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class DefinitionSubresources(Struct, kw_only=True):
    """What there is below the objects of a version.

    status: present, if the status is written apart from all else.
    scale: present, if objects can be scaled.
    """

    status: AnyFields | None = None
    scale: DefinitionScale | None = None


class DefinitionColumn(Struct, kw_only=True):
    """One column of what kubectl get prints.

    name: the column's heading.
    type: what the cells are: integer, number, string, boolean or date.
    json_path: where in an object the value is.
    description: what the column tells.
    format: how the value is written, as in OpenAPI.
    priority: above 0 it is shown with -o wide only.
    """

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0


class SelectableField(Struct, kw_only=True):
    """A field by which lists and watches can be narrowed.

    json_path: where it is: a simple path to a string, boolean or integer.
    """

    json_path: str


class DefinitionVersion(Struct, kw_only=True):
    """One version of a kind.

    name: its name in paths, such as v1beta1.
    served: whether it can be asked for.
    storage: whether objects are stored in this version; exactly one is.
    deprecated: whether those who ask for it are warned.
    deprecation_warning: what they are told.
    schema: how objects are pruned, defaulted and checked.
    subresources: what there is below its objects.
    additional_printer_columns: what kubectl get prints; the age alone if nothing is named.
    selectable_fields: by which fields lists and watches can be narrowed.
    """

    name: str
    served: bool
    storage: bool
    deprecated: bool = False
    deprecation_warning: str | None = None
    schema: DefinitionSchema | None = None
    subresources: DefinitionSubresources | None = None
    additional_printer_columns: list[DefinitionColumn] = []
    selectable_fields: list[SelectableField] = []


class DefinitionConversion(Struct, kw_only=True):
    """How objects of one version become those of another.

    strategy: None, for nothing but apiVersion changes; Webhook is not supported.
    webhook: who converts.
    """

    strategy: str
    webhook: AnyFields | None = None


class CustomResourceDefinitionSpec(Struct, kw_only=True):
    """What is to be served.

    group: the API group of the kind: a domain.
    names: what its objects are called.
    scope: Namespaced or Cluster.
    versions: its versions, one of which is stored.
    conversion: how objects of one version become those of another.
    preserve_unknown_fields: a relic that must be false.
    """

    group: str
    names: DefinitionNames
    scope: str
    versions: list[DefinitionVersion]
    conversion: DefinitionConversion | None = None
    preserve_unknown_fields: bool = False


class DefinitionCondition(Condition, kw_only=True):
    """One thing that is known of a definition.

    type: NamesAccepted, Established, Terminating or NonStructuralSchema.
    status: True, False or Unknown.
    reason: one word for why.
    message: why, for people.
    observed_generation: the generation of the definition that it was told of.
    """

    observed_generation: int = 0


class CustomResourceDefinitionStatus(Struct, kw_only=True):
    """What has become of a definition.

    accepted_names: the names that are served: those asked for, where nobody had them.
    conditions: whether the names are accepted and the kind is served.
    stored_versions: versions in which objects may have been stored.
    observed_generation: the generation of the definition that was last looked at.
    """

    accepted_names: DefinitionNames | None = None
    conditions: list[DefinitionCondition] | None = None
    stored_versions: list[str] | None = None
    observed_generation: int = 0


class CustomResourceDefinition(Object, kw_only=True):
    """A kind that users bring: once it is established, its objects are served as any others.

    spec: what is to be served.
    status: what has become of it.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = KIND

    spec: CustomResourceDefinitionSpec
    status: CustomResourceDefinitionStatus | None = None


DEFINITION: Final = kubernetes_kind(
    group=GROUP,
    plural=PLURAL,
    short=("crd", "crds"),
    categories=("api-extensions",),
    view=CustomResourceDefinition,
    namespaced=False,
    columns=(created_at(),),
    default=defaults.complete,
    default_create=defaults.begin,
    validate=validation.validate,
    begin_deletion=lifecycle.begin_deletion,
)
