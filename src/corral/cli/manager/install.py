"""``corral install``, ``corral uninstall``: what a Kubernetes cluster needs for corral's kinds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from corral.api import yaml
from corral.api.errors import ApiError
from corral.api.object import Document
from corral.cli.errors import Problem
from corral.client import kubeconfig
from corral.client.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from corral.client.client import Client

C = TypeVar("C", bound=Callable[..., Any])


def _options(command: C) -> C:
    """Add the options that both commands share."""
    command = click.option(
        "--namespace",
        default="corral-system",
        metavar="NAMESPACE",
        show_default=True,
        help="Where the controllers and the nodes run.",
    )(command)
    return click.option(
        "--kubeconfig",
        "path",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The cluster, and an administrator of it.",
    )(command)


@click.command(
    epilog="\b\nExample:\n  corral install --print | kubectl apply -f -\n"
    "  corral install --kubeconfig admin.conf --image images.example.com/corral:1.0"
)
@_options
@click.option(
    "--image",
    default="",
    metavar="IMAGE",
    help="The image with corral and QEMU that the pods run.  [default: corral:VERSION]",
)
@click.option(
    "--print", "prints", is_flag=True, help="Write the manifests to standard output; apply nothing."
)
def install(path: Path | None, namespace: str, image: str, prints: bool) -> None:  # noqa: FBT001 (a flag)
    """Install corral's kinds, controllers and nodes on a Kubernetes cluster.

    CustomResourceDefinitions, roles, webhooks, the aggregated API subresources.kubevirt.io, a
    Deployment of controllers and a DaemonSet of nodes. An installation is brought up to date.
    """
    found = _documents(namespace, image)
    if prints:
        for each in found:
            click.echo(f"---\n{yaml.dump(each)}", nl=False)
        return
    from corral.daemon.install import installer  # noqa: PLC0415  a second of imports

    _run(path, lambda client: installer.install(client, found, click.echo))


@click.command(epilog="\b\nExample:\n  corral uninstall --kubeconfig admin.conf")
@_options
@click.option("--yes", is_flag=True, help="End all machines, and lose all objects and their disks.")
def uninstall(path: Path | None, namespace: str, yes: bool) -> None:  # noqa: FBT001 (a flag)
    """Remove from a Kubernetes cluster what corral install has put there.

    All objects of KubeVirt's and CDI's kinds go with it.
    """
    from corral.daemon.install import installer  # noqa: PLC0415  a second of imports

    found = _documents(namespace, "")

    async def remove(client: "Client") -> None:
        if not yes and (lost := await installer.lost_objects(client)):
            counts = ", ".join(f"{count} {resource}" for resource, count in lost.items())
            raise Problem(
                f"these would be lost, with their disks: {counts}",
                "corral uninstall --yes removes them, too.",
            )
        await installer.uninstall(client, found, click.echo)

    _run(path, remove)


def _documents(namespace: str, image: str) -> Sequence[Document]:
    from corral.daemon.install import manifests, options  # noqa: PLC0415  a second of imports

    chosen = options.Options(namespace=namespace, image=image or options.IMAGE)
    return list(manifests.documents(chosen))


def _run(path: Path | None, work: Callable[["Client"], Awaitable[None]]) -> None:
    """Run work with a client of the cluster; turn its errors into a Problem."""
    from corral.client.client import Client  # noqa: PLC0415
    from corral.client.https import Https  # noqa: PLC0415
    from corral.client.retries import Retrying  # noqa: PLC0415
    from corral.daemon.install.installer import InstallError  # noqa: PLC0415

    if path is None:
        raise Problem(
            "no cluster is named",
            "Name the kubeconfig of an administrator with --kubeconfig.",
        )

    async def run() -> None:
        async with Https(kubeconfig.load(path)) as transport:
            await work(Client(Retrying(transport)))

    try:
        asyncio.run(run())
    except KubeconfigError as error:
        raise Problem(str(error), "Name another with --kubeconfig.") from error
    except (ApiError, InstallError) as error:
        raise Problem(str(error)) from error
