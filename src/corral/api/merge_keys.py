"""Merge strategies of lists and objects in Kubernetes' own types.

They are the tags ``listType``, ``listMapKey``, ``structType``, ``mapType``, ``patchStrategy`` and
``patchMergeKey`` in Kubernetes' sources.  A list that is not listed here is atomic, an object
granular.  Types are found by their name, in any version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

Schema = dict[str, Any]

PATCH_STRATEGY: Final = "x-kubernetes-patch-strategy"
PATCH_KEY: Final = "x-kubernetes-patch-merge-key"
"""Extensions of a schema: strategic merge patches merge this list, and by which key."""


@dataclass(frozen=True, slots=True)
class ListMerge:
    """The way that a list is merged.

    keys: of items, for server-side apply; without keys the list is a set of scalars, or ``atomic``.
    patch_key: the key for strategic merge patches, which replace the list unless ``patched``.
    retain_keys: clients send ``$retainKeys``, for items of which only one of several fields may be
        set.
    """

    keys: tuple[str, ...] = ()
    patch_key: str = ""
    patched: bool = True
    retain_keys: bool = False
    atomic: bool = False

    def schema(self) -> Schema:
        """Return the extensions of the list's schema."""
        kind = "atomic" if self.atomic else "map" if self.keys else "set"
        schema: Schema = {"x-kubernetes-list-type": kind}
        if self.keys:
            schema["x-kubernetes-list-map-keys"] = list(self.keys)
        if self.patched:
            schema[PATCH_STRATEGY] = "merge,retainKeys" if self.retain_keys else "merge"
        if self.patch_key:
            schema[PATCH_KEY] = self.patch_key
        return schema


def _by(*keys: str, retain_keys: bool = False) -> ListMerge:
    return ListMerge(keys, patch_key=keys[0], retain_keys=retain_keys)


def _patched_by(key: str) -> ListMerge:
    """Return the strategy of a list that is atomic in an apply, and merged by a patch."""
    return ListMerge(patch_key=key, atomic=True)


_SET: Final = ListMerge()
_KEYED_BY_TYPE: Final = _by("type")
_CONDITIONS: Final = {"conditions": _KEYED_BY_TYPE}
_APPLIED_CONDITIONS: Final = {"conditions": ListMerge(("type",), patched=False)}
_CONTAINER: Final = {
    "env": _by("name"),
    "ports": _by("containerPort", "protocol"),
    "volumeMounts": _by("mountPath"),
    "volumeDevices": _by("devicePath"),
}

MERGED: Final[Mapping[str, Mapping[str, ListMerge]]] = {
    "ObjectMeta": {"ownerReferences": _by("uid"), "finalizers": _SET},
    "PodSpec": {
        "containers": _by("name"),
        "ephemeralContainers": _by("name"),
        "hostAliases": _by("ip"),
        "imagePullSecrets": _by("name"),
        "initContainers": _by("name"),
        "resourceClaims": _by("name", retain_keys=True),
        "schedulingGates": _by("name"),
        "topologySpreadConstraints": _by("topologyKey", "whenUnsatisfiable"),
        "volumes": _by("name", retain_keys=True),
    },
    "Container": _CONTAINER,
    "EphemeralContainer": _CONTAINER,
    "ResourceRequirements": {"claims": ListMerge(("name",), patched=False)},
    "PodStatus": {
        "conditions": _KEYED_BY_TYPE,
        "hostIPs": _patched_by("ip"),
        "podIPs": _by("ip"),
        "resourceClaimStatuses": _by("name", retain_keys=True),
    },
    "ContainerStatus": {
        "allocatedResourcesStatus": _by("name"),
        "volumeMounts": _by("mountPath"),
    },
    "ServiceSpec": {"ports": _by("port", "protocol")},
    "ServiceAccount": {"secrets": _by("name")},
    "NodeSpec": {"podCIDRs": _SET},
    "NodeStatus": {"addresses": _KEYED_BY_TYPE, "conditions": _KEYED_BY_TYPE},
    "ComponentStatus": _CONDITIONS,
    "CSINodeSpec": {"drivers": _by("name")},
    "MutatingWebhookConfiguration": {"webhooks": _by("name")},
    "ValidatingWebhookConfiguration": {"webhooks": _by("name")},
    "MutatingWebhook": {"matchConditions": _by("name")},
    "ValidatingWebhook": {"matchConditions": _by("name")},
    "ValidatingAdmissionPolicySpec": {
        "matchConditions": _by("name"),
        "variables": _by("name"),
    },
    "ValidatingAdmissionPolicyBindingSpec": {"validationActions": _SET},
    "JobStatus": {"conditions": _patched_by("type")},
    **dict.fromkeys(
        (
            "CertificateSigningRequestStatus",
            "CustomResourceDefinitionStatus",
            "ValidatingAdmissionPolicyStatus",
        ),
        _APPLIED_CONDITIONS,
    ),
    **dict.fromkeys(
        (
            "APIServiceStatus",
            "DaemonSetStatus",
            "DeploymentStatus",
            "HorizontalPodAutoscalerStatus",
            "NamespaceStatus",
            "PersistentVolumeClaimStatus",
            "PodDisruptionBudgetStatus",
            "ReplicaSetStatus",
            "ReplicationControllerStatus",
            "ServiceStatus",
            "StatefulSetStatus",
        ),
        _CONDITIONS,
    ),
}
"""The lists that are merged, by type and field."""

ATOMIC: Final = frozenset(
    [
        "ConfigMapKeySelector",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "MatchResources",
        "NamedRuleWithOperations",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ParamKind",
        "ParamRef",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "ScopedResourceSelectorRequirement",
        "SecretKeySelector",
        "SecretReference",
        "ServiceBackendPort",
        "Subject",
        "TopologySelectorTerm",
        "TypedLocalObjectReference",
    ]
)
"""Types whose objects are atomic."""

_FIELDS: Final[Mapping[tuple[str, str], Schema]] = {
    ("ServiceSpec", "selector"): {"x-kubernetes-map-type": "atomic"},
    ("PodSpec", "nodeSelector"): {"x-kubernetes-map-type": "atomic"},
    ("ReplicationControllerSpec", "selector"): {"x-kubernetes-map-type": "atomic"},
    ("Scheduling", "nodeSelector"): {"x-kubernetes-map-type": "atomic"},
    ("PersistentVolumeSpec", "claimRef"): {"x-kubernetes-map-type": "granular"},
    ("ContainerPort", "protocol"): {"default": "TCP"},
    ("ServicePort", "protocol"): {"default": "TCP"},
}
"""Other extensions, by type and field."""


def merged_by(*keys: str) -> msgspec.Meta:
    """Return the annotation of a list in a type of ours that is a map by these keys."""
    return msgspec.Meta(extra_json_schema=ListMerge(keys, patched=False).schema())


def extensions(holder: str, name: str) -> Schema:
    """Return the merge extensions of a type's field; empty for most."""
    merged = MERGED.get(holder, {}).get(name)
    if merged is not None:
        return merged.schema()
    return dict(_FIELDS.get((holder, name), {}))
