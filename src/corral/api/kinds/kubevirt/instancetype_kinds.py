"""The kinds of instance types and preferences: names, versions and validation."""

from corral.api.errors import Cause
from corral.api.kind import Kind, Verdict, Version, Webhook, at
from corral.api.kinds.columns import age
from corral.api.kinds.kubevirt import instancetype_topology
from corral.api.kinds.kubevirt.instancetype import (
    GROUP,
    Instancetype,
    Preference,
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachinePreference,
)
from corral.api.object import Document

_DEPRECATED = {
    "spec.preferSpreadSocketToCoreRatio": "spec.cpu.spreadOptions.ratio",
    "spec.firmware.preferredUseEfi": "spec.firmware.preferredEfi",
    "spec.firmware.preferredUseSecureBoot": "spec.firmware.preferredEfi",
}
"""Deprecated fields of a preference, and their replacements."""


def _check_instancetype(document: Document, _old: Document | None, _user: str) -> Verdict:
    memory = document["spec"]["memory"]
    verdict = Verdict()
    if memory.get("overcommitPercent") and memory.get("hugepages"):
        path = "spec.memory.overcommitPercent"
        message = f"{path} and spec.memory.hugepages should not be requested together."
        verdict.causes.append(Cause(path, message))
    if at(document, "spec", "launchSecurity") is not None:
        verdict.warnings.append(
            "launchSecurity is deprecated and will be removed in a future release. "
            "Use preference instead."
        )
    return verdict


def _check_preference(document: Document, _old: Document | None, _user: str) -> Verdict:
    verdict = Verdict()
    topology = at(document, "spec", "cpu", "preferredCPUTopology")
    if topology and topology not in instancetype_topology.TOPOLOGIES:
        message = f"unknown preferredCPUTopology {topology}"
        verdict.causes.append(Cause("spec.cpu.preferredCPUTopology", message))
    options = at(document, "spec", "cpu", "spreadOptions") or {}
    across, ratio = options.get("across"), options.get("ratio")
    if across and across not in instancetype_topology.ACROSS:
        message = f"across {across} is not supported"
        verdict.causes.append(Cause("spec.cpu.spreadOptions.across", message))
    if across == "CoresThreads" and ratio and ratio != instancetype_topology.THREADS_OF_A_CORE:
        message = (
            "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and "
            "threads"
        )
        verdict.causes.append(Cause("spec.cpu.spreadOptions.ratio", message))
    verdict.warnings += [
        f"{old} is deprecated, use {new} instead"
        for old, new in _DEPRECATED.items()
        if at(document, *old.split(".")) not in (None, 0)
    ]
    return verdict


def _kind(view: type[Instancetype | Preference], short: str, *, namespaced: bool) -> Kind:
    """Return the row of a kind; ``short`` are its short names, separated by spaces."""
    name = view.kind.lower()
    validator = f"{name}-validator.{GROUP}"
    return Kind(
        group=GROUP,
        plural=f"{name}s",
        short=tuple(short.split()),
        categories=("all",) if namespaced else (),
        versions=(Version(name="v1beta1"),),
        view=view,
        namespaced=namespaced,
        status=False,
        columns=(age(),),
        validate=_check_instancetype if issubclass(view, Instancetype) else _check_preference,
        webhook=Webhook(create=validator, update=validator),
    )


KINDS = (
    _kind(VirtualMachineInstancetype, "vminstancetype vminstancetypes vmf vmfs", namespaced=True),
    _kind(
        VirtualMachineClusterInstancetype,
        "vmclusterinstancetype vmclusterinstancetypes vmcf vmcfs",
        namespaced=False,
    ),
    _kind(VirtualMachinePreference, "vmpref vmprefs vmp vmps", namespaced=True),
    _kind(VirtualMachineClusterPreference, "vmcp vmcps", namespaced=False),
)
