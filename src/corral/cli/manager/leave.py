"""``corral leave``: end this host's part in the cluster that it has joined."""

import asyncio
from contextlib import suppress

import click
from lightkube.models.core_v1 import Node

from corral.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from corral.api.object import Key
from corral.cli.errors import Problem
from corral.cli.manager.stop import end_machines, end_process
from corral.cli.options import data_directory
from corral.client.client import Client
from corral.client.https import Https
from corral.config import Layout
from corral.daemon import lock
from corral.daemon.errors import CannotStart
from corral.daemon.membership import Membership, config_of, forget


@click.command(epilog="\b\nExample:\n  corral leave\n  corral leave --grace-period 5")
@data_directory
@click.option(
    "--grace-period",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=30,
    show_default=True,
    help="Seconds that guests get to shut down.",
)
@click.option("--force", is_flag=True, help="Leave although the API server does not answer.")
def leave(layout: Layout, grace_period: float, *, force: bool) -> None:
    """Shut this host's machines down, delete its Node, and forget the cluster.

    Drain it first (kubectl drain) to have its machines replaced elsewhere before they end.
    """
    member = Membership.load(layout)
    if member is None:
        raise Problem(f"no cluster was joined with {layout.root}")
    end_process(layout)
    try:
        with lock.acquire(layout.lock, url=""):
            count = asyncio.run(end_machines(layout, grace_period))
            try:
                asyncio.run(_delete_node(layout, member))
            except (ApiError, CannotStart) as error:
                if not force:
                    raise Problem(
                        f"the Node {member.name} is not deleted: {error}",
                        f"--force leaves all the same; kubectl delete node {member.name} then "
                        "removes it.",
                    ) from error
            forget(layout)
    except lock.AlreadyRunning as other:
        raise Problem(f"another agent has just started on {layout.root}") from other
    many = f"{count} machine{'s' * (count != 1)} shut down"
    click.echo(f"Node {member.name} has left {member.server}; {many}.")


async def _delete_node(layout: Layout, member: Membership) -> None:
    async with Https(config_of(layout, member.server)) as transport:
        with suppress(NotFound, Unauthorized, Forbidden):  # deleted by an administrator
            await Client(transport).delete(Node, Key("", member.name))
