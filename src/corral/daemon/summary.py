"""The lines that ``corral up`` prints when the manager is ready."""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from corral import __version__
from corral.config import Settings
from corral.node.hypervisor import Hypervisor, StartError
from corral.node.qemu.hypervisor import Qemu


async def summary(
    settings: Settings, url: str, hypervisors: Sequence[Hypervisor]
) -> dict[str, str]:
    age = _age_seconds()
    layout = settings.layout
    lines = {
        "headline": f"corral {__version__} is ready after {age:.1f} s",
        "API": url,
        "kubeconfig": str(layout.kubeconfig),
        "data": str(layout.root),
        "dashboard": shlex.join(["corral", "dashboard", *layout.option]),
    }
    for hypervisor in hypervisors[:1]:
        lines["machines"] = await _machines(hypervisor)
    return lines


def _age_seconds() -> float:
    """Return the age of this process, imports included."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


async def _machines(hypervisor: Hypervisor) -> str:
    """Describe the hypervisor and why it was chosen."""
    if isinstance(hypervisor, Qemu):
        try:
            await hypervisor.finding()
        except StartError:  # of a host that is overloaded, or whose QEMU hangs
            return "QEMU; its accelerator is still being probed, see: corral status"
    facts = hypervisor.facts()
    if facts["accelerator"] == "none":
        return f"{facts['hypervisor']}: {facts['reason']}"
    version = f" {facts['version']}" if facts.get("version") else ""
    return f"{facts['hypervisor']}{version}, {facts['accelerator']}: {facts['reason']}"
