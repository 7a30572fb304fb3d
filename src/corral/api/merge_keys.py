"""How the lists and objects of Kubernetes' own types are merged: facts of those types.

They stand as tags in Kubernetes' sources (``listType``, ``listMapKey``, ``structType``,
``mapType``, ``patchStrategy``, ``patchMergeKey``).  A list that is not named here is replaced as a
whole, an object is merged field by field.  Types are found by their name, whichever version they
are of.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

Schema = dict[str, Any]

PATCH_STRATEGY: Final = "x-kubernetes-patch-strategy"
PATCH_KEY: Final = "x-kubernetes-patch-merge-key"
"""How a schema says that strategic merge patches merge a list, and by which key."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A list that is merged.

    ``keys`` tell its items apart when it is applied; without keys it is a set of plain values, or
    replaced as a whole where it is ``atomic``.  Strategic merge patches go by ``patch_key``
    instead, and merge it not at all where ``patched`` is false.  Some ``retain_keys``: clients
    send which of several fields of an item, of which only one may be set, shall stay.
    """

    keys: tuple[str, ...] = ()
    patch_key: str = ""
    patched: bool = True
    retain_keys: bool = False
    atomic: bool = False

    def schema(self) -> Schema:
        """What a schema says of such a list."""
        kind = "atomic" if self.atomic else "map" if self.keys else "set"
        told: Schema = {"x-kubernetes-list-type": kind}
        if self.keys:
            told["x-kubernetes-list-map-keys"] = list(self.keys)
        if self.patched:
            told[PATCH_STRATEGY] = "merge,retainKeys" if self.retain_keys else "merge"
        if self.patch_key:
            told[PATCH_KEY] = self.patch_key
        return told


def _by(*keys: str, retain_keys: bool = False) -> Merged:
    return Merged(keys, patch_key=keys[0], retain_keys=retain_keys)


def _patched_by(key: str) -> Merged:
    """Of the lists that are replaced where they are applied, and merged where they are patched."""
    return Merged(patch_key=key, atomic=True)


_SET: Final = Merged()
_BY_TYPE: Final = _by("type")
_CONDITIONS: Final = {"conditions": _BY_TYPE}
_APPLIED_CONDITIONS: Final = {"conditions": Merged(("type",), patched=False)}
_CONTAINER: Final = {
    "env": _by("name"),
    "ports": _by("containerPort", "protocol"),
    "volumeMounts": _by("mountPath"),
    "volumeDevices": _by("devicePath"),
}

MERGED: Final[Mapping[str, Mapping[str, Merged]]] = {
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
    "ResourceRequirements": {"claims": Merged(("name",), patched=False)},
    "PodStatus": {
        "conditions": _BY_TYPE,
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
    "NodeStatus": {"addresses": _BY_TYPE, "conditions": _BY_TYPE},
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
"""The lists that are merged, by the type whose fields they are."""

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
"""Types whose objects are replaced as a whole."""

_FIELDS: Final[Mapping[tuple[str, str], Schema]] = {
    ("ServiceSpec", "selector"): {"x-kubernetes-map-type": "atomic"},
    ("PodSpec", "nodeSelector"): {"x-kubernetes-map-type": "atomic"},
    ("ReplicationControllerSpec", "selector"): {"x-kubernetes-map-type": "atomic"},
    ("Scheduling", "nodeSelector"): {"x-kubernetes-map-type": "atomic"},
    ("PersistentVolumeSpec", "claimRef"): {"x-kubernetes-map-type": "granular"},
    ("ContainerPort", "protocol"): {"default": "TCP"},
    ("ServicePort", "protocol"): {"default": "TCP"},
}
"""What else a field's schema says."""


def merged_by(*keys: str) -> msgspec.Meta:
    """Says of a list in a type of ours that its items are told apart by keys."""
    return msgspec.Meta(extra_json_schema=Merged(keys, patched=False).schema())


def told(holder: str, name: str) -> Schema:
    """What the schema of a type's field says about how it is merged; empty for most."""
    merged = MERGED.get(holder, {}).get(name)
    if merged is not None:
        return merged.schema()
    return dict(_FIELDS.get((holder, name), {}))
