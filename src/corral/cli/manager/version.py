"""``corral version``."""

import asyncio
import platform
import subprocess

import click
import msgspec

from corral import __version__
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session, session_of
from corral.config import Layout

KUBEVIRT = "/apis/subresources.kubevirt.io/v1/version"
KUBERNETES = "/version"
"""Paths of the server's versions that virtctl and kubectl print."""


@click.command(
    cls=options.Command, epilog="\b\nExample:\n  corral version\n  corral version --client"
)
@options.data_directory
@click.option("-c", "--client", is_flag=True, help="Do not ask the server.")
def version(*, layout: Layout, client: bool) -> None:
    """Print the versions of corral, of what it stands on, and of the server."""
    click.echo(f"corral  {__version__}")
    click.echo(f"python  {platform.python_version()}")
    click.echo(f"qemu    {_qemu()}")
    if not client:
        click.echo(f"server  {_server(layout)}")


def _qemu() -> str:
    try:
        output = subprocess.run(
            ["qemu-system-x86_64", "--version"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout  # fmt: skip
    except FileNotFoundError:
        return "not installed"
    except (subprocess.SubprocessError, OSError) as error:
        return f"does not run: {error}"
    return output.split("version", 1)[-1].split()[0]


def _server(layout: Layout) -> str:
    try:
        session = session_of(layout)
        with session.api_errors():
            kubevirt, kubernetes = asyncio.run(_versions(session))
    except Problem as problem:
        return f"unknown: {problem}"
    versions = f"{kubevirt} (KubeVirt), {kubernetes} (Kubernetes, as kubectl version prints it)"
    ours = kubevirt.endswith(f"+corral-{__version__}")
    return versions if ours else f"{versions}, which is not the version of this command"


async def _versions(session: Session) -> tuple[str, str]:
    """Return the versions of KubeVirt's and of Kubernetes' API."""
    async with session.client() as client:
        kubevirt, kubernetes = [
            msgspec.json.decode(await client.request("GET", path), type=dict[str, str])
            for path in (KUBEVIRT, KUBERNETES)
        ]
    return kubevirt.get("gitVersion", "unknown"), kubernetes.get("gitVersion", "unknown")
