"""Machines that run on where no manager does, and what becomes of them."""

from corral.cli import hints
from corral.config import Layout


def running_on(layout: Layout) -> str:
    """How many run on, as a sentence's end: ``2 machines run on``; empty where there are none."""
    from corral.node.host.process import runs  # noqa: PLC0415
    from corral.node.state import machine_record as records  # noqa: PLC0415  half a second that a start can spare

    left = sum(
        runs(machine)
        for node in layout.node_directories()
        for machine, _ in records.unfinished(node)
    )
    if not left:
        return ""
    return "1 machine runs on" if left == 1 else f"{left} machines run on"


def what_next(layout: Layout) -> str:
    """Who takes them over, and who ends them."""
    return f"{hints.up(layout)} takes over what runs; {hints.other('down', layout)} ends it."
