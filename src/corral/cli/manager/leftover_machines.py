"""Machines that run without a manager: their count, and hints for the user."""

from corral.cli import hints
from corral.config import Layout


def running_on(layout: Layout) -> str:
    """Return ``2 machines run on``, the end of a sentence; empty if there are none."""
    from corral.node.host.proc import runs  # noqa: PLC0415
    from corral.node.state import machine_record as records  # noqa: PLC0415  half a second of imports

    left = sum(
        runs(machine)
        for node in layout.node_directories()
        for machine, _ in records.unfinished(node)
    )
    if not left:
        return ""
    return "1 machine runs on" if left == 1 else f"{left} machines run on"


def next_commands(layout: Layout) -> str:
    """Return a hint: the commands that adopt and that end these machines."""
    return f"{hints.up(layout)} takes over what runs; {hints.command_line('down', layout)} ends it."
