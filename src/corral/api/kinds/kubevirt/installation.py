"""KubeVirt: the object that installs and configures KubeVirt (kubevirt.io/v1).

Nothing is installed here: the manager creates the one KubeVirt object and writes its status, since
virtctl, user interfaces and operators read it.  Of its spec, ``cpuAllocationRatio``,
``referencePolicy``, ``evictionStrategy``, ``vmRolloutStrategy``, ``liveUpdateConfiguration``,
``workloadUpdateStrategy`` and most settings of ``migrations`` have an effect; every other field
gets a warning that names it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, Final

import msgspec

from corral import __version__
from corral.api.conditions import set_condition
from corral.api.errors import Cause
from corral.api.kind import Kind, Verdict, Version, Webhook, at
from corral.api.kinds.columns import age, field
from corral.api.kinds.kubevirt import workload_update
from corral.api.kinds.kubevirt.workload_update import WorkloadUpdateStrategy
from corral.api.kinds.vmi import live_update, migration_configuration
from corral.api.kinds.vmi.live_update import LiveUpdateConfiguration
from corral.api.kinds.vmi.migration_configuration import (
    DEFAULTS,
    EFFECTIVE,
    MigrationConfiguration,
    merged,
)
from corral.api.kinds.vmi.vmi import GROUP
from corral.api.object import AnyFields, Condition, Document, Key, Object, Struct

KUBEVIRT = "1.8.0"
"""The version of KubeVirt whose API is served."""
REPORTED_VERSION = f"v{KUBEVIRT}+corral-{__version__}"
KEY = Key("kubevirt", "kubevirt")
"""Namespace and name of the one KubeVirt object."""
CPU_RATIO: Final = 10
"""Virtual CPUs per CPU of the node if a VMI has no CPU request: each requests 100m (KubeVirt's
DefaultCPUAllocationRatio)."""
POLICIES = REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"
"""Policies for a VirtualMachine's references to instance type and preference: keep them, expand
them into the spec, or expand also those that an earlier policy kept."""
POLICY_FIELD: Final = "spec.configuration.instancetype.referencePolicy"
RATIO_FIELD: Final = "spec.configuration.developerConfiguration.cpuAllocationRatio"
EVICTION_FIELD: Final = "spec.configuration.evictionStrategy"
ROLLOUT_FIELD: Final = "spec.configuration.vmRolloutStrategy"
ROLLOUT_STRATEGIES: Final = ("Stage", "LiveUpdate")
"""Ways of changes of a VirtualMachine to its VMI: at its next start, or at once where
that is possible (the default, as in KubeVirt)."""
LIVE_UPDATE_FIELD: Final = "spec.configuration.liveUpdateConfiguration"
EVICTION_STRATEGIES: Final = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")

_CONDITIONS = (
    ("Available", "True", "AllComponentsReady", "All components are ready."),
    ("Progressing", "False", "AllComponentsReady", "All components are ready."),
    ("Degraded", "False", "AllComponentsReady", "All components are ready."),
    ("Created", "True", "AllResourcesCreated", "All resources were created."),
)

_MIGRATIONS: Final = "spec.configuration.migrations"
_UPDATES: Final = "spec.workloadUpdateStrategy"
_SECTIONS = (
    "configuration", "developerConfiguration", "instancetype", "migrations",
    "workloadUpdateStrategy", "liveUpdateConfiguration",
)  # fmt: skip
_IMPLEMENTED = frozenset(
    {
        RATIO_FIELD,
        POLICY_FIELD,
        EVICTION_FIELD,
        ROLLOUT_FIELD,
        *(
            f"{LIVE_UPDATE_FIELD}.{name}"
            for name in ("maxHotplugRatio", "maxCpuSockets", "maxGuest")
        ),
        *(f"{_MIGRATIONS}.{name}" for name in EFFECTIVE),
        *(f"{_UPDATES}.{name}" for name in workload_update.FIELDS),
    }
)


class KubeVirtSpec(Struct, kw_only=True):
    """Desired state; of the configuration few fields have an effect.

    image_tag: the version of the images of KubeVirt's components.
    image_registry: where those images come from.
    image_pull_policy: when they are pulled.
    image_pull_secrets: Secrets with credentials for pulling them.
    monitor_namespace: where Prometheus runs.
    service_monitor_namespace: where ServiceMonitors are made.
    monitor_account: the account by which Prometheus reads.
    product_version: the version label of the components.
    product_name: the part-of label of the components.
    product_component: the component label of the components.
    uninstall_strategy: whether remaining workloads block the removal of KubeVirt.
    workload_update_strategy: how running machines get a new version of their launcher.
    certificate_rotate_strategy: how long certificates of the components are valid.
    customize_components: patches of the components' manifests.
    configuration: how machines are run, and which of them may be.
    infra: placement of the control plane.
    workloads: placement of the components on nodes.
    """

    image_tag: str = ""
    image_registry: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: list[AnyFields] = []
    monitor_namespace: str = ""
    service_monitor_namespace: str = ""
    monitor_account: str = ""
    product_version: str = ""
    product_name: str = ""
    product_component: str = ""
    uninstall_strategy: str = ""
    workload_update_strategy: AnyFields = {}
    certificate_rotate_strategy: AnyFields = {}
    customize_components: AnyFields = {}
    configuration: AnyFields = {}
    infra: AnyFields = {}
    workloads: AnyFields = {}


class KubeVirtStatus(Struct, kw_only=True):
    """Observed state.

    phase: phase of the installation; here always Deployed.
    conditions: Available, Progressing, Degraded and Created.
    operator_version: the version of the operator.
    target_kube_virt_version: the desired version.
    observed_kube_virt_version: the version that runs.
    observed_generation: the generation that was last reconciled.
    default_architecture: architecture of machines that name none.
    outdated_virtual_machine_instance_workloads: machines that run with an older launcher.
    """

    phase: str = ""
    conditions: list[Condition] = []
    operator_version: str = ""
    target_kube_virt_version: str = ""
    observed_kube_virt_version: str = ""
    observed_generation: int = 0
    default_architecture: str = ""
    outdated_virtual_machine_instance_workloads: int | None = None


class KubeVirt(Object, kw_only=True):
    """The installation of KubeVirt; there is one, kubevirt in the namespace kubevirt.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "KubeVirt"

    spec: KubeVirtSpec = msgspec.field(default_factory=KubeVirtSpec)
    status: KubeVirtStatus = msgspec.field(default_factory=KubeVirtStatus)


def cpu_allocation_ratio(kubevirt: KubeVirt | None, default: int) -> int:
    """Return the virtual CPUs per CPU of the node: as configured, else ``default``.

    0 counts as unset, as in KubeVirt; so does an invalid value, which an earlier version may have
    stored, as it did not validate the field.
    """
    with suppress(ValueError):
        return _ratio(_setting(kubevirt, RATIO_FIELD)) or default
    return default


def _setting(kubevirt: KubeVirt | None, field: str) -> Any:
    """Return the value of a field of the spec; None if it is not set."""
    if kubevirt is None:
        return None
    _, section, *names = field.split(".")
    top = {
        "configuration": kubevirt.spec.configuration,
        "workloadUpdateStrategy": kubevirt.spec.workload_update_strategy,
    }
    return at(top[section], *names)


def _ratio(value: Any) -> int | None:
    """Return the configured ratio.  Raises ValueError if it is not a whole number."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of 0 (the default) or more")
    return value


def reference_policy(kubevirt: KubeVirt | None) -> str:
    """Return the policy for references to instance types and preferences, one of POLICIES."""
    value = _setting(kubevirt, POLICY_FIELD)
    return value if value in POLICIES else REFERENCE


def eviction_strategy(kubevirt: KubeVirt | None) -> str | None:
    """Return the ``evictionStrategy`` of VMIs that have none of their own; None if there is none.

    It applies to running VMIs, too, from the moment that it is set (KubeVirt's
    VMIEvictionStrategy).
    """
    value = _setting(kubevirt, EVICTION_FIELD)
    return value if value in EVICTION_STRATEGIES else None


def live_updates(kubevirt: KubeVirt | None) -> LiveUpdateConfiguration | None:
    """Return the room for live updates; None if changes of VirtualMachines wait for a start.

    Invalid settings, which an earlier version may have stored, count as unset.
    """
    if _setting(kubevirt, ROLLOUT_FIELD) == "Stage":
        return None
    with suppress(ValueError):
        return live_update.read_configuration(_setting(kubevirt, LIVE_UPDATE_FIELD))
    return LiveUpdateConfiguration()


def update_strategy(kubevirt: KubeVirt | None) -> WorkloadUpdateStrategy:
    """Return how outdated VMIs are renewed; an invalid strategy counts as none."""
    with suppress(ValueError):
        return workload_update.read(_setting(kubevirt, _UPDATES))
    return WorkloadUpdateStrategy()


def migration_settings(kubevirt: KubeVirt | None) -> MigrationConfiguration:
    """Return the settings of migrations, with KubeVirt's defaults.

    Invalid ones, which an earlier version may have stored, count as unset.
    """
    with suppress(ValueError):
        return merged(DEFAULTS, migration_configuration.read(_setting(kubevirt, _MIGRATIONS)))
    return DEFAULTS


def _one_of(supported: tuple[str, ...]) -> Callable[[Any], None]:
    """Return a check of a field with a few supported values, or none."""

    def check(value: Any) -> None:
        if value is not None and value not in supported:
            values = ", ".join(f'"{each}"' for each in supported)
            raise ValueError(f'Unsupported value: "{value}": supported values: {values}')

    return check


_CHECKS: Final[tuple[tuple[str, Callable[[Any], object]], ...]] = (
    (RATIO_FIELD, _ratio),
    (POLICY_FIELD, _one_of(POLICIES)),
    (EVICTION_FIELD, _one_of(EVICTION_STRATEGIES)),
    (ROLLOUT_FIELD, _one_of(ROLLOUT_STRATEGIES)),
    (LIVE_UPDATE_FIELD, live_update.read_configuration),
    (_MIGRATIONS, migration_configuration.read),
    (_UPDATES, workload_update.read),
)
"""Checks of the fields that have an effect; they raise ValueError."""


SPEC: Final[Document] = {
    "certificateRotateStrategy": {},
    "configuration": {"developerConfiguration": {"featureGates": []}},
    "customizeComponents": {},
    "imagePullPolicy": "IfNotPresent",
    "workloadUpdateStrategy": {},
}
"""The spec of the KubeVirt object that the manager creates, as in KubeVirt's own manifest."""


def deployed_status(kubevirt: KubeVirt, architecture: str, now: str) -> Document:
    """Return the status of the KubeVirt object; unchanged conditions keep their times."""
    conditions: list[Document] = msgspec.to_builtins(kubevirt.status.conditions)
    for name, status, reason, message in _CONDITIONS:
        conditions = set_condition(
            conditions, name, status, reason=reason, message=message, now=now
        )
    return {
        "phase": "Deployed",
        "conditions": conditions,
        "operatorVersion": REPORTED_VERSION,
        "targetKubeVirtVersion": REPORTED_VERSION,
        "observedKubeVirtVersion": REPORTED_VERSION,
        "observedGeneration": kubevirt.metadata.generation,
        "defaultArchitecture": architecture,
    }


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    metadata = document["metadata"]
    if Key(metadata.get("namespace", ""), metadata.get("name", "")) != KEY:
        message = f"KubeVirt is already created: there is one, {KEY}, kept by corral itself"
        return Verdict(causes=[Cause("metadata.name", message)])
    for path, check in _CHECKS:
        value = at(document, *path.split("."))
        if old is not None and value == at(old, *path.split(".")):
            continue  # an earlier version may have stored it
        try:
            _ = check(value)
        except ValueError as error:
            return Verdict(causes=[Cause(path, f"{path}: {error}")])
    fields = list(_set_fields(document.get("spec") or {}, "spec"))
    stored = list(_set_fields(at(old, "spec") or {}, "spec"))
    return Verdict(
        warnings=[f"{path} has no effect in this version" for path in fields if path not in stored]
    )


def _set_fields(document: Document, path: str) -> Iterator[str]:
    """Yield the paths of fields that are set and have no effect."""
    for name, value in document.items():
        here = f"{path}.{name}"
        if value in (None, "", {}, []) or here in _IMPLEMENTED:
            continue
        if name in _SECTIONS and isinstance(value, dict):
            yield from _set_fields(value, here)
        else:
            yield here


KUBEVIRT_KIND = Kind(
    group=GROUP,
    plural="kubevirts",
    short=("kv", "kvs"),
    categories=("all",),
    versions=(Version(name="v1"), Version(name="v1alpha3", deprecated=True)),
    view=KubeVirt,
    columns=(age(), field("Phase", "status", "phase", description="phase of the installation")),
    validate=_validate,
    webhook=Webhook(
        create="kubevirt-create-validator.kubevirt.io",
        update="kubevirt-update-validator.kubevirt.io",
    ),
)
