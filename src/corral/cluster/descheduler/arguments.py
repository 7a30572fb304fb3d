"""Arguments of the descheduler's plugins (descheduler/v1alpha2), and what makes them valid.

Names, defaults and rules are the descheduler's.  Unknown fields are refused, where it ignores them:
a misspelled limit would be none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, label_selector, parse_labels
from corral.api.time import parse_duration

CPU, MEMORY, PODS = BASIC = ("cpu", "memory", "pods")
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = CONSTRAINTS = ("DoNotSchedule", "ScheduleAnyway")
REQUIRED, PREFERRED = NODE_AFFINITY_TYPES = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
PREFER_NO_EVICTION_POLICIES = PREFERRED_POLICY, MANDATORY_POLICY = ("Preferred", "Mandatory")
LOCAL_STORAGE, DAEMON_SETS, SYSTEM_CRITICAL, FAILED_BARE = DEFAULT_PROTECTIONS = (
    "PodsWithLocalStorage",
    "DaemonSetPods",
    "SystemCriticalPods",
    "FailedBarePods",
)
CLAIMS, WITHOUT_BUDGET, RESOURCE_CLAIMS = EXTRA_PROTECTIONS = (
    "PodsWithPVC",
    "PodsWithoutPDB",
    "PodsWithResourceClaims",
)


class Part(msgspec.Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A part of the policy."""


class Arguments(Part, kw_only=True, frozen=True):
    """Arguments of a plugin; they may repeat a type of their own."""

    api_version: str = ""
    kind: str = ""

    def faults(self) -> Iterator[str]:
        """Yield what is wrong, each beginning with its field."""
        yield from ()


class Names(Part, frozen=True):
    """Namespaces, or kinds of owners, to which a plugin is limited, or which it leaves out."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, *names: str) -> bool:
        """Return whether one of the names is included, or none is excluded."""
        if self.include:
            return any(name in self.include for name in names)
        return not any(name in self.exclude for name in names)

    def faults(self, field: str) -> Iterator[str]:
        if self.include and self.exclude:
            yield f"{field}: only one of include and exclude may be set"


ALL: Final = Names()


class Expression(Part, frozen=True):
    """A requirement of a label selector (meta/v1 LabelSelectorRequirement)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Part, kw_only=True, frozen=True):
    """A label selector (meta/v1 LabelSelector); an empty one selects everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()

    def parsed(self) -> LabelSelector:
        """Return the selector to match with.  Raises BadRequest."""
        return label_selector(msgspec.to_builtins(self))

    def faults(self, field: str) -> Iterator[str]:
        try:
            self.parsed()
        except BadRequest as error:
            yield f"{field}: {error}"


EVERYTHING: Final = Selector()


class Selection(Arguments, kw_only=True, frozen=True):
    """Arguments that limit a plugin to some pods."""

    namespaces: Names = ALL
    label_selector: Selector = EVERYTHING

    def faults(self) -> Iterator[str]:
        yield from self.namespaces.faults("namespaces")
        yield from self.label_selector.faults("labelSelector")


class PriorityThreshold(Part, frozen=True):
    """Pods of this priority, or of this PriorityClass, and above stay."""

    value: int | None = None
    name: str = ""


class ProtectedStorageClass(Part, frozen=True):
    """A StorageClass whose claims keep their pods."""

    name: str


class PodsWithPVC(Part, frozen=True):
    """Settings of the protection of pods with claims: without classes, all of them stay."""

    protected_storage_classes: tuple[ProtectedStorageClass, ...] = ()


class ProtectionSettings(Part, frozen=True):
    """Settings by the name of the protection."""

    pods_with_pvc: PodsWithPVC = msgspec.field(default=PodsWithPVC(), name=CLAIMS)


class PodProtections(Part, frozen=True):
    """Protections that are switched off, and on."""

    default_disabled: tuple[str, ...] = ()
    extra_enabled: tuple[str, ...] = ()
    config: ProtectionSettings = ProtectionSettings()

    def faults(self) -> Iterator[str]:
        for field, names, valid in (
            ("defaultDisabled", self.default_disabled, DEFAULT_PROTECTIONS),
            ("extraEnabled", self.extra_enabled, EXTRA_PROTECTIONS),
        ):
            for name in names:
                if name not in valid:
                    yield f"podProtections.{field}: {_not_one_of(name, valid)}"
            if len(set(names)) < len(names):
                yield f"podProtections.{field}: a name is there twice"


class DefaultEvictorArgs(Arguments, kw_only=True, frozen=True):
    """Arguments of DefaultEvictor: which pods may be evicted at all."""

    node_selector: str = ""
    label_selector: Selector = EVERYTHING
    namespace_label_selector: Selector = EVERYTHING
    priority_threshold: PriorityThreshold = PriorityThreshold()
    node_fit: bool = False
    min_replicas: int = 0
    min_pod_age: str = ""
    no_eviction_policy: str = PREFERRED_POLICY
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = msgspec.field(default=False, name="ignorePodsWithoutPDB")
    evict_failed_bare_pods: bool = False

    @property
    def min_pod_age_seconds(self) -> float:
        return parse_duration(self.min_pod_age) if self.min_pod_age else 0.0

    @property
    def protections(self) -> frozenset[str]:
        """The protections that are on, by ``podProtections`` or by the older fields."""
        chosen = self.pod_protections
        disabled = {*chosen.default_disabled, *self._by_old_fields(disabled=True)}
        enabled = {*chosen.extra_enabled, *self._by_old_fields(disabled=False)}
        return frozenset(set(DEFAULT_PROTECTIONS) - disabled | enabled)

    def _by_old_fields(self, *, disabled: bool) -> Iterator[str]:
        """Yield the default protections that are off, or the extra ones that are on."""
        fields = {
            LOCAL_STORAGE: self.evict_local_storage_pods,
            DAEMON_SETS: self.evict_daemon_set_pods,
            SYSTEM_CRITICAL: self.evict_system_critical_pods,
            FAILED_BARE: self.evict_failed_bare_pods,
            CLAIMS: self.ignore_pvc_pods,
            WITHOUT_BUDGET: self.ignore_pods_without_pdb,
        }
        names = DEFAULT_PROTECTIONS if disabled else EXTRA_PROTECTIONS
        yield from (name for name in names if fields.get(name))

    def faults(self) -> Iterator[str]:
        if self.priority_threshold.name and self.priority_threshold.value is not None:
            yield "priorityThreshold: only one of name and value may be set"
        if self.no_eviction_policy not in PREFER_NO_EVICTION_POLICIES:
            valid = PREFER_NO_EVICTION_POLICIES
            yield f"noEvictionPolicy: {_not_one_of(self.no_eviction_policy, valid)}"
        old = [*self._by_old_fields(disabled=True), *self._by_old_fields(disabled=False)]
        if old and (self.pod_protections.default_disabled or self.pod_protections.extra_enabled):
            yield (
                "podProtections: not beside evict…Pods and ignore…Pods, which are the older fields "
                "for the same"
            )
        yield from self.pod_protections.faults()
        yield from _duration_faults("minPodAge", self.min_pod_age)
        yield from _number_faults("minReplicas", self.min_replicas)
        yield from self.label_selector.faults("labelSelector")
        yield from self.namespace_label_selector.faults("namespaceLabelSelector")
        yield from node_selector_faults(self.node_selector)


Thresholds = Mapping[str, float]
"""Percentages by resource."""


class EvictionLimits(Part, frozen=True):
    """The most evictions of one plugin in a cycle, from each node."""

    node: int | None = None


class NodeUtilization(Arguments, kw_only=True, frozen=True):
    """Arguments that both plugins about utilization have."""

    thresholds: Thresholds = {}
    number_of_nodes: int = 0
    evictable_namespaces: Names = ALL

    def faults(self) -> Iterator[str]:
        yield from _threshold_faults("thresholds", self.thresholds)
        yield from _number_faults("numberOfNodes", self.number_of_nodes)
        if self.evictable_namespaces.include:
            yield "evictableNamespaces.include: only exclude may be set"


class LowNodeUtilizationArgs(NodeUtilization, kw_only=True, frozen=True):
    """Arguments of LowNodeUtilization."""

    target_thresholds: Thresholds = {}
    use_deviation_thresholds: bool = False
    metrics_utilization: Mapping[str, Any] | None = None
    eviction_limits: EvictionLimits = EvictionLimits()

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        yield from _threshold_faults("targetThresholds", self.target_thresholds)
        if self.thresholds.keys() != self.target_thresholds.keys():
            yield "targetThresholds: must have the same resources as thresholds"
        elif not self.use_deviation_thresholds:
            for name, low in self.thresholds.items():
                if low > self.target_thresholds[name]:
                    yield f"thresholds.{name}: must not be greater than in targetThresholds"
        if self.metrics_utilization:
            yield (
                "metricsUtilization: corral compares requests, not measured usage: remove it, and "
                "choose thresholds for requests"
            )
        yield from _number_faults("evictionLimits.node", self.eviction_limits.node or 0)


class HighNodeUtilizationArgs(NodeUtilization, kw_only=True, frozen=True):
    """Arguments of HighNodeUtilization."""

    eviction_modes: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        for mode in self.eviction_modes:
            if mode != ONLY_THRESHOLDING_RESOURCES:
                yield f"evictionModes: {_not_one_of(mode, (ONLY_THRESHOLDING_RESOURCES,))}"


class RemoveDuplicatesArgs(Arguments, kw_only=True, frozen=True):
    """Arguments of RemoveDuplicates."""

    namespaces: Names = ALL
    exclude_owner_kinds: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        yield from self.namespaces.faults("namespaces")


class TopologySpreadArgs(Selection, kw_only=True, frozen=True):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: tuple[str, ...] = (DO_NOT_SCHEDULE,)
    topology_balance_node_fit: bool = True

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        for name in self.constraints:
            if name not in CONSTRAINTS:
                yield f"constraints: {_not_one_of(name, CONSTRAINTS)}"


class NodeTaintsArgs(Selection, kw_only=True, frozen=True):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.excluded_taints and self.included_taints:
            yield "includedTaints: only one of includedTaints and excludedTaints may be set"


class NodeAffinityArgs(Selection, kw_only=True, frozen=True):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if not self.node_affinity_type:
            yield f"nodeAffinityType: must have one or both of {', '.join(NODE_AFFINITY_TYPES)}"
        for name in self.node_affinity_type:
            if name not in NODE_AFFINITY_TYPES:
                yield f"nodeAffinityType: {_not_one_of(name, NODE_AFFINITY_TYPES)}"


class ConditionFilter(Part, frozen=True):
    """A condition of pods; fields that are not set match any."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = None


class PodLifeTimeArgs(Selection, kw_only=True, frozen=True):
    """Arguments of PodLifeTime; a pod must match each filter that is set."""

    owner_kinds: Names = ALL
    max_pod_life_time_seconds: int | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[ConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    STATES: ClassVar = frozenset(
        (
            *("Running", "Pending", "Succeeded", "Failed", "Unknown"),  # phases
            *("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"),  # of pods
            *("PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff"),
            *("CreateContainerConfigError", "ErrImagePull", "CreateContainerError"),
            "InvalidImageName",
            *("OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted"),  # of containers
            *("ContainerCannotRun", "StartError"),
        )
    )

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        yield from self.owner_kinds.faults("ownerKinds")
        for name in self.states:
            if name not in self.STATES:
                yield f"states: {_not_one_of(name, sorted(self.STATES))}"
        if any(each == ConditionFilter() for each in self.conditions):
            yield "conditions: each must have a field"
        chosen = (self.states, self.conditions, self.exit_codes)
        if self.max_pod_life_time_seconds is None and not any(chosen):
            yield "maxPodLifeTimeSeconds: this, states, conditions or exitCodes must be set"
        yield from _number_faults("maxPodLifeTimeSeconds", self.max_pod_life_time_seconds or 0)


def node_selector_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a ``nodeSelector``."""
    try:
        parse_labels(text)
    except BadRequest as error:
        yield f"nodeSelector: {error}"


def _threshold_faults(field: str, thresholds: Thresholds) -> Iterator[str]:
    if not thresholds:
        yield f"{field}: must have a resource: {', '.join(BASIC)}, or another one of the nodes"
    for name, percentage in thresholds.items():
        if not 0 <= percentage <= 100:
            yield f"{field}.{name}: must be a percentage from 0 to 100, not {percentage:g}"


def _duration_faults(field: str, text: str) -> Iterator[str]:
    try:
        _ = parse_duration(text) if text else 0
    except ValueError as error:
        yield f"{field}: {error}"


def _number_faults(field: str, number: int) -> Iterator[str]:
    if number < 0:
        yield f"{field}: must not be negative"


def _not_one_of(name: str, valid: Sequence[str]) -> str:
    return f'"{name[:50]}" is none of {", ".join(valid)}'
