"""``corral start``, ``restart`` and ``stop`` of a VirtualMachine."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.target import Target, vm_target

C = TypeVar("C", bound=Callable[..., Any])


def dry_run(command: C) -> C:
    """Add ``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help="Validate the request; do nothing.")(
        command
    )


def force(command: C) -> C:
    """Add ``--force`` and ``--grace-period``, of which virtctl requires both or none."""
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
    _request(session, machine, "start", "Error starting", {"paused": paused}, dry=dry_run)


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
    prefix = "error force restarting" if force else "error restarting"
    request: Document = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
    _request(session, machine, "restart", prefix, request, dry=dry_run)


def stop(
    session: Session, machine: Sequence[str], *, force: bool, grace_period: int | None, dry: bool
) -> None:
    """Stop a VirtualMachine.  Raises Problem."""
    _require_both(grace_period, force=force)
    prefix = "error force stopping" if force else "error stopping"
    request: Document = {} if grace_period is None else {"gracePeriod": grace_period}
    _request(session, machine, "stop", prefix, request, dry=dry)


def _require_both(grace_period: int | None, *, force: bool) -> None:
    if (grace_period is not None) is not force:
        raise Problem("Must both use --force=true and set --grace-period.")


def _request(
    session: Session,
    machine: Sequence[str],
    subresource: str,
    prefix: str,
    request: Document,
    *,
    dry: bool,
) -> None:
    target = vm_target(machine, session.namespace)
    if dry:
        click.echo("Dry Run execution")
        request = {**request, "dryRun": ["All"]}
    with session.api_errors(f"{prefix} VirtualMachine"):
        asyncio.run(_put(session, target, subresource, request))
    click.echo(f"VM {target.name} was scheduled to {subresource}")


async def _put(session: Session, target: Target, subresource: str, request: Document) -> None:
    async with session.client() as client:
        await client.request("PUT", target.path(subresource), document=request)
