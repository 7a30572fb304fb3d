"""``corral start``, ``restart``, and ``stop`` of a VirtualMachine, in virtctl's grammar."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.target import Target, vm_named

C = TypeVar("C", bound=Callable[..., Any])


def dry_run(command: C) -> C:
    """Add ``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help="Ask whether it could be; do nothing.")(
        command
    )


def force(command: C) -> C:
    """Add ``--force`` and ``--grace-period``, of which virtctl wants both or none."""
    command = click.option(
        "--grace-period",
        type=int,
        help="Seconds that the guest gets to shut down; needs --force.",
    )(command)
    return click.option("--force", is_flag=True, help="Do not wait for the guest's own time.")(
        command
    )


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n  corral start testvm\n  corral start testvm --paused",
)
@click.argument("machine", metavar="[vm] NAME", nargs=-1, required=True)
@click.option("--paused", is_flag=True, help="Start it with its processors stopped.")
@dry_run
@options.session
def start(*, session: Session, machine: Sequence[str], paused: bool, dry_run: bool) -> None:
    """Start a VirtualMachine."""
    _tell(session, machine, "start", "Error starting", {"paused": paused}, dry=dry_run)


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral restart testvm\n"
    "  corral restart testvm --force --grace-period 0",
)
@click.argument("machine", metavar="[vm] NAME", nargs=-1, required=True)
@force
@dry_run
@options.session
def restart(
    *, session: Session, machine: Sequence[str], force: bool, grace_period: int | None,
    dry_run: bool,
) -> None:  # fmt: skip
    """Restart a VirtualMachine: its machine ends, and another one is made."""
    _require_both(grace_period, force=force)
    doing = "error force restarting" if force else "error restarting"
    wanted: Document = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
    _tell(session, machine, "restart", doing, wanted, dry=dry_run)


def stop(
    session: Session, machine: Sequence[str], *, force: bool, grace_period: int | None, dry: bool
) -> None:
    """Stop a VirtualMachine.  Raises Problem."""
    _require_both(grace_period, force=force)
    doing = "error force stopping" if force else "error stopping"
    wanted: Document = {} if grace_period is None else {"gracePeriod": grace_period}
    _tell(session, machine, "stop", doing, wanted, dry=dry)


def _require_both(grace_period: int | None, *, force: bool) -> None:
    if (grace_period is not None) is not force:
        raise Problem("Must both use --force=true and set --grace-period.")


def _tell(
    session: Session, machine: Sequence[str], what: str, doing: str, wanted: Document, *, dry: bool
) -> None:
    where = vm_named(machine, session.namespace)
    if dry:
        click.echo("Dry Run execution")
        wanted = {**wanted, "dryRun": ["All"]}
    with session.api_errors(f"{doing} VirtualMachine"):
        asyncio.run(_ask(session, where, what, wanted))
    click.echo(f"VM {where.name} was scheduled to {what}")


async def _ask(session: Session, where: Target, what: str, wanted: Document) -> None:
    async with session.client() as client:
        await client.request("PUT", where.path(what), document=wanted)
