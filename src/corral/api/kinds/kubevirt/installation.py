"""KubeVirt: the object by which one installs and sets up KubeVirt (kubevirt.io/v1).

Here there is nothing to install: the one object is made by the manager and tells what runs, since
virtctl, user interfaces and operators look for it.  Of what it asks for, ``cpuAllocationRatio`` and
``referencePolicy`` have an effect; every other field has none, and is warned of by name.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, Final

import msgspec

from corral import __version__
from corral.api.conditions import set_condition
from corral.api.errors import Cause
from corral.api.kind import Kind, Verdict, Version, Webhook, at
from corral.api.kinds.columns import age, field
from corral.api.kinds.vmi.vmi import GROUP
from corral.api.object import AnyFields, Condition, Document, Key, Object, Struct

KUBEVIRT = "1.8.0"
"""The KubeVirt whose API is spoken."""
TOLD_VERSION = f"v{KUBEVIRT}+corral-{__version__}"
KEY = Key("kubevirt", "kubevirt")
"""The one KubeVirt that there is."""
CPU_RATIO: Final = 10
"""Virtual processors that share a real one where a machine names no cpu request: each asks for 100m
(KubeVirt's DefaultCPUAllocationRatio)."""
POLICIES = REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"
"""What becomes of a VirtualMachine's instance type and preference once they are found: they are
kept as they are; the VirtualMachine says itself what they say; so do those that had them kept."""
POLICY_FIELD: Final = "spec.configuration.instancetype.referencePolicy"
RATIO_FIELD: Final = "spec.configuration.developerConfiguration.cpuAllocationRatio"

_CONDITIONS = (
    ("Available", "True", "AllComponentsReady", "All components are ready."),
    ("Progressing", "False", "AllComponentsReady", "All components are ready."),
    ("Degraded", "False", "AllComponentsReady", "All components are ready."),
    ("Created", "True", "AllResourcesCreated", "All resources were created."),
)

_LOOKED_INTO = ("configuration", "developerConfiguration", "instancetype")
_ACTED_UPON = (RATIO_FIELD, POLICY_FIELD)


class KubeVirtSpec(Struct, kw_only=True):
    """What was asked for; only ``cpuAllocationRatio`` and ``referencePolicy`` have an effect.

    image_tag: the version of the images of KubeVirt's components.
    image_registry: where those images come from.
    image_pull_policy: when they are pulled.
    image_pull_secrets: what proves that they may be pulled.
    monitor_namespace: where Prometheus runs.
    service_monitor_namespace: where ServiceMonitors are made.
    monitor_account: the account by which Prometheus reads.
    product_version: what the version label of the components says.
    product_name: what the part-of label of the components says.
    product_component: what the component label of the components says.
    uninstall_strategy: whether machines that are left keep KubeVirt from being removed.
    workload_update_strategy: how running machines get a new version of their launcher.
    certificate_rotate_strategy: how long certificates of the components are good.
    customize_components: patches of the components' manifests.
    configuration: how machines are run, and which of them may be.
    infra: where the components run that control.
    workloads: where the components run that have to do with machines.
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
    """What runs.

    phase: how far the installation is; here always Deployed.
    conditions: what is known about it.
    operator_version: the version of who keeps this object.
    target_kube_virt_version: the version that shall run.
    observed_kube_virt_version: the version that runs.
    observed_generation: the generation of the object that was last looked at.
    default_architecture: the processor of machines that name none.
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
    """The KubeVirt that runs; there is one, kubevirt in the namespace kubevirt.

    spec: what was asked for.
    status: what runs.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1"
    kind: ClassVar[str] = "KubeVirt"

    spec: KubeVirtSpec = msgspec.field(default_factory=KubeVirtSpec)
    status: KubeVirtStatus = msgspec.field(default_factory=KubeVirtStatus)


def cpu_allocation_ratio(found: KubeVirt | None, default: int) -> int:
    """Virtual processors that share a real one: what the object names, else ``default``.

    KubeVirt takes 0 for unset.  What is no number was stored before this field had an effect.
    """
    with suppress(ValueError):
        return (found and _ratio(found.spec.configuration)) or default
    return default


def _ratio(configuration: Any) -> int | None:
    """The ratio that a configuration names.  Raises ValueError for what is none."""
    named = at(configuration, "developerConfiguration", "cpuAllocationRatio")
    if named is None:
        return None
    if not isinstance(named, int) or isinstance(named, bool) or named < 0:
        raise ValueError(f"{named!r} is not a whole number of 0 (the default) or more")
    return named


def reference_policy(found: KubeVirt | None) -> str:
    """What becomes of instance types and preferences: one of POLICIES."""
    named = at(found.spec.configuration, "instancetype", "referencePolicy") if found else None
    return named if named in POLICIES else REFERENCE


SPEC: Final[Document] = {
    "certificateRotateStrategy": {},
    "configuration": {"developerConfiguration": {"featureGates": []}},
    "customizeComponents": {},
    "imagePullPolicy": "IfNotPresent",
    "workloadUpdateStrategy": {},
}
"""What the one KubeVirt says where nobody has said anything, as in KubeVirt's own manifest."""


def deployed(found: KubeVirt, architecture: str, now: str) -> Document:
    """The status of the KubeVirt that runs; the same as long as nothing changes."""
    conditions: list[Document] = msgspec.to_builtins(found.status.conditions)
    for name, status, reason, message in _CONDITIONS:
        conditions = set_condition(
            conditions, name, status, reason=reason, message=message, now=now
        )
    return {
        "phase": "Deployed",
        "conditions": conditions,
        "operatorVersion": TOLD_VERSION,
        "targetKubeVirtVersion": TOLD_VERSION,
        "observedKubeVirtVersion": TOLD_VERSION,
        "observedGeneration": found.metadata.generation,
        "defaultArchitecture": architecture,
        "outdatedVirtualMachineInstanceWorkloads": 0,
    }


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    metadata = document["metadata"]
    if Key(metadata.get("namespace", ""), metadata.get("name", "")) != KEY:
        message = f"KubeVirt is already created: there is one, {KEY}, kept by corral itself"
        return Verdict(causes=[Cause("metadata.name", message)])
    configuration = at(document, "spec", "configuration")
    if old is None or configuration != at(old, "spec", "configuration"):
        try:
            _ratio(configuration)
        except ValueError as error:
            return Verdict(causes=[Cause(RATIO_FIELD, f"{RATIO_FIELD}: {error}")])
        policy = at(configuration, "instancetype", "referencePolicy")
        if policy is not None and policy not in POLICIES:
            supported = ", ".join(f'"{each}"' for each in POLICIES)
            message = f'Unsupported value: "{policy}": supported values: {supported}'
            return Verdict(causes=[Cause(POLICY_FIELD, f"{POLICY_FIELD}: {message}")])
    asked = list(_asked(document.get("spec") or {}, "spec"))
    known = list(_asked(at(old, "spec") or {}, "spec"))
    return Verdict(
        warnings=[f"{path} has no effect in this version" for path in asked if path not in known]
    )


def _asked(document: Document, path: str) -> Iterator[str]:
    """The fields that ask for something: of those that are looked into the ones below."""
    for name, value in document.items():
        here = f"{path}.{name}"
        if value in (None, "", {}, []) or here in _ACTED_UPON:
            continue
        if name in _LOOKED_INTO and isinstance(value, dict):
            yield from _asked(value, here)
        else:
            yield here


KUBEVIRT_KIND = Kind(
    group=GROUP,
    plural="kubevirts",
    short=("kv", "kvs"),
    categories=("all",),
    versions=(Version(name="v1"), Version(name="v1alpha3", deprecated=True)),
    view=KubeVirt,
    columns=(age(), field("Phase", "status", "phase", description="how far it is installed")),
    validate=_validate,
    webhook=Webhook(
        create="kubevirt-create-validator.kubevirt.io",
        update="kubevirt-update-validator.kubevirt.io",
    ),
)
