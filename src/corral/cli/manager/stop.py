"""``corral stop`` and ``corral down``: end the manager; ``down`` ends the machines too.

``corral stop NAME`` stops one VirtualMachine, as virtctl does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from corral.cli import hints, options
from corral.cli.errors import Problem
from corral.cli.manager import leftover_machines, systemd_unit
from corral.cli.options import data_directory
from corral.cli.virtctl import power
from corral.config import Layout
from corral.daemon import lock

if TYPE_CHECKING:
    from corral.cli.session import Session

STOP_SECONDS = 30.0


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral stop\n"
    "  corral stop --systemd\n"
    "  corral stop testvm\n"
    "  corral stop vm testvm --force --grace-period 0",
)
@click.argument("machine", metavar="[[vm] NAME]", nargs=-1)
@click.option("--systemd", is_flag=True, help="Do not start the manager at boot any more, either.")
@power.force
@power.dry_run
@options.session_or_directory
def stop(
    *, find_session: "Callable[[], Session]", layout: Layout, machine: Sequence[str],
    systemd: bool, force: bool, grace_period: int | None, dry_run: bool,
) -> None:  # fmt: skip
    """End the manager; or, with a NAME, stop a VirtualMachine.

    Machines run on without the manager, and the next corral up takes them over.
    """
    if machine and systemd:
        raise Problem("--systemd is about the manager, and a VirtualMachine is named")
    if machine:
        power.stop(find_session(), machine, force=force, grace_period=grace_period, dry=dry_run)
        return
    if force or dry_run or grace_period is not None:
        raise Problem(
            "--force, --grace-period and --dry-run are about a VirtualMachine: none is named",
            "Write corral stop NAME; corral stop alone ends the manager.",
        )
    if systemd:
        click.echo(_remove_unit(layout))
    if end_process(layout):
        left = leftover_machines.running_on(layout)
        click.echo(f"The {hints.process_name(layout)} has ended; {left or 'no machine runs on'}.")
    elif not systemd:
        click.echo(f"No {hints.process_name(layout)} runs on {layout.root}.")


def _remove_unit(layout: Layout) -> str:
    """Remove systemd's unit, and return a message."""
    path = systemd_unit.unit_of(layout).path
    if systemd_unit.remove(layout):
        left = leftover_machines.running_on(layout)
        return f"{path} is removed: systemd starts corral no more{left and f'; {left}'}."
    return f"There is no {path}: systemd does not start corral."


@click.command(epilog="\b\nExample:\n  corral down\n  corral down --grace-period 5")
@data_directory
@click.option(
    "--grace-period", type=click.FloatRange(0), metavar="SECONDS", default=30, show_default=True,
    help="Seconds that guests get to shut down.",
)  # fmt: skip
def down(layout: Layout, grace_period: float) -> None:
    """End the manager, shut all its machines down, and remove their network.

    Objects stay: at the next corral up, replica sets make new machines.
    """
    name = hints.process_name(layout)
    has_run = end_process(layout)
    if not layout.lock.exists():
        click.echo(f"Nothing has run in {layout.root} yet.")
        return
    try:
        with lock.acquire(layout.lock, url=""):
            count = asyncio.run(end_machines(layout, grace_period))
    except lock.AlreadyRunning as other:
        raise Problem(f"another {name} has just started on {layout.root}") from other
    outcome = f"The {name} has ended" if has_run else f"No {name} ran"
    click.echo(f"{outcome}; {count} machine{'s' * (count != 1)} shut down.")


def end_process(layout: Layout) -> bool:
    """End the manager; return whether one ran."""
    running = lock.find(layout.lock)
    if running is None:
        return False
    if not running.stop(STOP_SECONDS):
        raise Problem(
            f"the {hints.process_name(layout)} (process {running.pid}) did not end within "
            f"{STOP_SECONDS:.0f} s",
            f"kill -9 {running.pid} ends it; machines are not harmed by that.",
        )
    return True


async def end_machines(layout: Layout, grace_seconds: float) -> int:
    from corral.node.agent.self_fencing import watchdog  # noqa: PLC0415
    from corral.node.hypervisor import StuckError  # noqa: PLC0415
    from corral.node.limits.limits import Limits  # noqa: PLC0415
    from corral.node.machine import shutdown  # noqa: PLC0415
    from corral.node.network.cni import networks as cni  # noqa: PLC0415
    from corral.node.network.machine_network import remove  # noqa: PLC0415  only where machines are
    from corral.node.network.netlink import NetworkError  # noqa: PLC0415
    from corral.node.qemu.hypervisor import Qemu  # noqa: PLC0415

    ended: list[str] = []
    limits = Limits(layout.root)
    ending = [
        shutdown.end_machines(
            node, Qemu(node), seconds=grace_seconds, ended=ended.append, limits=limits
        )
        for node in layout.node_directories()
    ]
    for outcome in await asyncio.gather(*ending, return_exceptions=True):
        if isinstance(outcome, StuckError):
            raise Problem(
                str(outcome), "corral down ends them as soon as the kernel releases them."
            )
        if outcome is not None:
            raise outcome
    try:
        for node in layout.node_directories():
            await watchdog(node).end()
        await remove(layout.network)
        await cni.remove(layout.network)
    except NetworkError as error:
        raise Problem(error.message, error.hint) from error
    return len(ended)
