"""``corral token``: the bootstrap tokens by which further hosts join."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import click
from lightkube.models.core_v1 import Secret

from corral import pki
from corral.api.errors import NotFound
from corral.api.kinds.auth import bootstrap_token
from corral.api.object import Key
from corral.api.time import parse_duration, rfc3339
from corral.cli.errors import Problem
from corral.cli.options import data_directory
from corral.cli.output import table
from corral.cli.session import session_of
from corral.client.client import Client
from corral.config import Layout
from corral.reconcile.objects import key_of

T = TypeVar("T")
_COLUMNS = ("TOKEN", "EXPIRES", "USED FOR", "DESCRIPTION")


@click.group(
    epilog="\b\nExample:\n"
    "  corral token create --ttl 1h --print-join-command\n"
    "  corral token list\n"
    "  corral token delete abcdef"
)
def token() -> None:
    """Create, list and delete tokens by which further hosts join this cluster."""


@token.command(epilog="\b\nExample:\n  corral token create --ttl 1h --print-join-command")
@data_directory
@click.option(
    "--ttl",
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="How long hosts may join with it, such as 1h30m; 0 for ever.",
)
@click.option("--description", default="", help="What it is for.")
@click.option("--print-join-command", is_flag=True, help="Print the command for the other host.")
def create(layout: Layout, ttl: str, description: str, *, print_join_command: bool) -> None:
    """Create a token.

    Whoever has it may add a node until it expires, but not take the place of one that is there.
    """
    try:
        seconds = parse_duration(ttl)
    except ValueError as error:
        raise Problem(f"--ttl: {error}") from error
    expiration = datetime.now(UTC) + timedelta(seconds=seconds) if seconds else None
    made = bootstrap_token.new_token(expiration, description)

    async def create(client: Client, server: str, authority: str) -> str:
        await client.create(Secret, made.document())
        if not print_join_command:
            return made.value
        hash_ = pki.public_key_hash(authority)
        return f"corral join {server} --token {made.value} --ca-hash {hash_}"

    click.echo(_in_cluster(layout, create))


@token.command("list", epilog="\b\nExample:\n  corral token list")
@data_directory
def list_(layout: Layout) -> None:
    """List the tokens, without their secrets."""

    async def listed(client: Client, _server: str, _authority: str) -> str:
        secrets = await client.list(
            Secret, bootstrap_token.NAMESPACE, fields=f"type={bootstrap_token.TYPE}"
        )
        rows = [row for each in secrets.items if (row := _row(each)) is not None]
        return table(_COLUMNS, rows) if rows else "There are no tokens."

    click.echo(_in_cluster(layout, listed))


@token.command(epilog="\b\nExample:\n  corral token delete abcdef")
@data_directory
@click.argument("token_id", metavar="TOKEN")
def delete(layout: Layout, token_id: str) -> None:
    """Delete a token, named by its id.

    Nodes that joined with it stay.
    """
    name = token_id.partition(".")[0]
    key = Key(bootstrap_token.NAMESPACE, f"{bootstrap_token.PREFIX}{name}")

    async def deleted(client: Client, _server: str, _authority: str) -> str:
        try:
            await client.delete(Secret, key)
        except NotFound as error:
            raise Problem(f"there is no token {name}", "corral token list lists them.") from error
        return f"token {name} is deleted"

    click.echo(_in_cluster(layout, deleted))


def _row(secret: Secret) -> tuple[str, ...] | None:
    found = bootstrap_token.read(key_of(secret).name, secret.data)
    if found is None:
        return None
    ends = rfc3339(found.expiration) if found.expiration else "never"
    uses = "authentication" if found.authenticates else "-"
    return f"{found.id}.****************", ends, uses, found.description or "-"


def _in_cluster(layout: Layout, act: Callable[[Client, str, str], Awaitable[T]]) -> T:
    """Act in the cluster of a data directory, with its URL and its authority (PEM)."""
    session = session_of(layout, layout.kubeconfig)

    async def run() -> T:
        with session.api_errors():
            async with session.client() as client:
                return await act(client, session.config.server, session.config.authority)

    return asyncio.run(run())
