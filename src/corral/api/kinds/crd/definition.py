"""CustomResourceDefinition: the definition of a custom kind (apiextensions.k8s.io/v1)."""

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
"""An OpenAPI schema, nested to any depth."""


class DefinitionNames(Struct, kw_only=True):
    """Names of a kind in paths, documents and commands.

    plural: the name in paths, all lower case; the definition is called <plural>.<group>.
    singular: the name of one object on the command line; the kind in lower case if it is left out.
    kind: the name in documents, in CamelCase.
    list_kind: the name of lists; the kind with List behind it if it is left out.
    short_names: abbreviations for kubectl, all lower case.
    categories: groups of kinds that kubectl lists together, such as all.
    """

    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class DefinitionSchema(Struct, kw_only=True):
    """The schema by which objects of a version are pruned, defaulted and checked.

    open_apiv3_schema: the structural schema, in OpenAPI v3.
    """

    open_apiv3_schema: JSONSchema | None = msgspec.field(default=None, name="openAPIV3Schema")


class DefinitionScale(Struct, kw_only=True):
    """Paths of the scale subresource.

    spec_replicas_path: desired replicas: a path under .spec.
    status_replicas_path: observed replicas: a path under .status.
    label_selector_path: selector of pods, as text: a path under .status or .spec.
    """

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class DefinitionSubresources(Struct, kw_only=True):
    """Subresources of a version.

    status: present if there is a status subresource.
    scale: present if there is a scale subresource.
    """

    status: AnyFields | None = None
    scale: DefinitionScale | None = None


class DefinitionColumn(Struct, kw_only=True):
    """A printer column.

    name: the column's heading.
    type: type of its cells: integer, number, string, boolean or date.
    json_path: JSONPath of the value.
    description: description of the column.
    format: OpenAPI format of the value.
    priority: columns above 0 are shown with -o wide only.
    """

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0


class SelectableField(Struct, kw_only=True):
    """A field for field selectors of lists and watches.

    json_path: a simple path to a string, boolean or integer.
    """

    json_path: str


class DefinitionVersion(Struct, kw_only=True):
    """One version of a kind.

    name: its name in paths, such as v1beta1.
    served: whether it is served.
    storage: whether objects are stored in this version; exactly one is.
    deprecated: whether its clients get a warning.
    deprecation_warning: text of that warning.
    schema: how objects are pruned, defaulted and checked.
    subresources: its subresources.
    additional_printer_columns: its printer columns; the age if there are none.
    selectable_fields: fields for field selectors.
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
    """The conversion of objects between versions.

    strategy: None, for nothing but apiVersion changes; Webhook is not supported.
    webhook: the webhook that converts.
    """

    strategy: str
    webhook: AnyFields | None = None


class CustomResourceDefinitionSpec(Struct, kw_only=True):
    """Desired state of a definition.

    group: the API group of the kind: a domain.
    names: its names.
    scope: Namespaced or Cluster.
    versions: its versions, one of which is stored.
    conversion: how objects of one version become those of another.
    preserve_unknown_fields: obsolete, must be false.
    """

    group: str
    names: DefinitionNames
    scope: str
    versions: list[DefinitionVersion]
    conversion: DefinitionConversion | None = None
    preserve_unknown_fields: bool = False


class DefinitionCondition(Condition, kw_only=True):
    """A condition of a definition.

    type: NamesAccepted, Established, Terminating or NonStructuralSchema.
    status: True, False or Unknown.
    reason: its reason, in one word.
    message: its reason, for people.
    observed_generation: the generation of the definition that it is about.
    """

    observed_generation: int = 0


class CustomResourceDefinitionStatus(Struct, kw_only=True):
    """Observed state of a definition.

    accepted_names: the names that are served: requested ones that no other kind uses.
    conditions: whether the names are accepted and the kind is served.
    stored_versions: versions in which objects may have been stored.
    observed_generation: the generation that was last reconciled.
    """

    accepted_names: DefinitionNames | None = None
    conditions: list[DefinitionCondition] | None = None
    stored_versions: list[str] | None = None
    observed_generation: int = 0


class CustomResourceDefinition(Object, kw_only=True):
    """The definition of a kind: once it is established, its objects are served as any others.

    spec: desired state.
    status: observed state.
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
    default=defaults.default_definition,
    default_create=defaults.default_status,
    validate=validation.validate,
    begin_deletion=lifecycle.begin_deletion,
)
