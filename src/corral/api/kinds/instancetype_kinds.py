"""Instance types and preferences as the server serves them: names, versions, rules."""

from corral.api.errors import Cause
from corral.api.instancetypes import topology
from corral.api.kind import Kind, Verdict, Version, Webhook, at
from corral.api.kinds.columns import age
from corral.api.kinds.instancetype import (
    GROUP,
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachinePreference,
)
from corral.api.object import Document

_VERSIONS = (Version(name="v1beta1"),)
_OLD = {
    "spec.preferSpreadSocketToCoreRatio": "spec.cpu.spreadOptions.ratio",
    "spec.firmware.preferredUseEfi": "spec.firmware.preferredEfi",
    "spec.firmware.preferredUseSecureBoot": "spec.firmware.preferredEfi",
}
"""Fields of a preference that are on their way out, and what is used instead."""


def _check_instancetype(document: Document, _old: Document | None, _user: str) -> Verdict:
    cpu, memory = document["spec"]["cpu"], document["spec"]["memory"]
    causes = []
    if memory.get("overcommitPercent") and memory.get("hugepages"):
        message = "overcommitPercent and hugepages should not be requested together."
        causes.append(Cause("spec.memory.overcommitPercent", f"spec.memory: {message}"))
    if not cpu["guest"]:
        causes.append(Cause("spec.cpu.guest", "spec.cpu.guest must be greater than 0"))
    if (most := cpu.get("maxSockets")) and most < cpu["guest"]:
        message = "spec.cpu.maxSockets cannot be less than spec.cpu.guest"
        causes.append(Cause("spec.cpu.maxSockets", message))
    return Verdict(causes)


def _check_preference(document: Document, _old: Document | None, _user: str) -> Verdict:
    verdict = Verdict()
    asked = at(document, "spec", "cpu", "preferredCPUTopology")
    if asked and asked not in topology.TOPOLOGIES:
        message = f"unknown preferredCPUTopology {asked}"
        verdict.causes.append(Cause("spec.cpu.preferredCPUTopology", message))
    options = at(document, "spec", "cpu", "spreadOptions") or {}
    across, ratio = options.get("across"), options.get("ratio")
    if across and across not in topology.ACROSS:
        message = f"across {across} is not supported"
        verdict.causes.append(Cause("spec.cpu.spreadOptions.across", message))
    if across == "CoresThreads" and ratio and ratio != topology.THREADS_OF_A_CORE:
        message = (
            "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and "
            "threads"
        )
        verdict.causes.append(Cause("spec.cpu.spreadOptions.ratio", message))
    verdict.warnings += [
        f"{old} is deprecated, use {new} instead"
        for old, new in _OLD.items()
        if at(document, *old.split(".")) not in (None, 0)
    ]
    return verdict


def _webhook(name: str) -> Webhook:
    return Webhook(create=f"{name}-validator.{GROUP}", update=f"{name}-validator.{GROUP}")


KINDS = (
    Kind(
        group=GROUP,
        name="VirtualMachineInstancetype",
        plural="virtualmachineinstancetypes",
        singular="virtualmachineinstancetype",
        short=("vminstancetype", "vminstancetypes", "vmf", "vmfs"),
        categories=("all",),
        versions=_VERSIONS,
        columns=(age(),),
        view=VirtualMachineInstancetype,
        status=False,
        validate=_check_instancetype,
        webhook=_webhook("virtualmachineinstancetype"),
    ),
    Kind(
        group=GROUP,
        name="VirtualMachineClusterInstancetype",
        plural="virtualmachineclusterinstancetypes",
        singular="virtualmachineclusterinstancetype",
        short=("vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"),
        versions=_VERSIONS,
        columns=(age(),),
        view=VirtualMachineClusterInstancetype,
        namespaced=False,
        status=False,
        validate=_check_instancetype,
        webhook=_webhook("virtualmachineclusterinstancetype"),
    ),
    Kind(
        group=GROUP,
        name="VirtualMachinePreference",
        plural="virtualmachinepreferences",
        singular="virtualmachinepreference",
        short=("vmpref", "vmprefs", "vmp", "vmps"),
        categories=("all",),
        versions=_VERSIONS,
        columns=(age(),),
        view=VirtualMachinePreference,
        status=False,
        validate=_check_preference,
        webhook=_webhook("virtualmachinepreference"),
    ),
    Kind(
        group=GROUP,
        name="VirtualMachineClusterPreference",
        plural="virtualmachineclusterpreferences",
        singular="virtualmachineclusterpreference",
        short=("vmcp", "vmcps"),
        versions=_VERSIONS,
        columns=(age(),),
        view=VirtualMachineClusterPreference,
        namespaced=False,
        status=False,
        validate=_check_preference,
        webhook=_webhook("virtualmachineclusterpreference"),
    ),
)
