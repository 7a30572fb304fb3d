"""``corral image``: disk images in the image store."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from corral.cli import help_lists
from corral.cli.errors import Problem
from corral.cli.options import data_directory
from corral.cli.output import ProgressLine, size, table
from corral.config import Layout
from corral.node.host.destinations import ANYWHERE
from corral.node.images.credentials import DOCKER_CONFIG_JSON, from_secret
from corral.node.images.demo import DemoError, build_demo
from corral.node.images.error import ImageError
from corral.node.images.examples import DEMO_REFERENCES
from corral.node.images.image import Image
from corral.node.images.progress import Progress
from corral.node.images.store import ImageStore

T = TypeVar("T")


@click.group(cls=help_lists.Group)
def image() -> None:
    """Build, import, pull, list and remove the disks that machines start from.

    An imported disk is found under its name without a registry, so manifests that name a container
    image work where none can be reached.
    """


@image.command(
    "build-demo",
    epilog="\b\nExample:\n  corral image build-demo\n"
    "  corral image build-demo --as lab/a:1 --as lab/b:1",
)
@data_directory
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where downloads and the built disk are kept.  [default: cache in the data directory]",
)
@click.option(
    "--as", "references", multiple=True, metavar="REFERENCE", default=DEMO_REFERENCES,
    help="A name for the image, instead of those of KubeVirt's examples; may be given again.",
)  # fmt: skip
def build_demo_(layout: Layout, cache: Path | None, references: tuple[str, ...]) -> None:
    """Build a small Linux guest from Debian packages; no root is needed.

    It boots in 64 MB, does DHCP and a good part of cloud-init, serves its host name on port 80,
    and lets in user cirros, password gocubsgo.
    """
    directory = (cache or layout.cache).absolute()
    line = ProgressLine()
    store = _store(layout)  # creates the data directory, for its owner alone

    async def build() -> Image:
        disk = await build_demo(directory / "demo.img", cache=directory, progress=line.show)
        return await store.import_disk(disk, references, progress=_show_in(line))

    found = _run(build, line)
    click.echo(f"built {size(found.size)} in {line.seconds:.1f} s; manifests know it as")
    for reference in references:
        click.echo(f"  {reference}")


@image.command("import", epilog="\b\nExample:\n  corral image import debian-12.qcow2 lab/debian:12")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("references", metavar="REFERENCE...", nargs=-1, required=True)
@data_directory
def import_(layout: Layout, file: Path, references: tuple[str, ...]) -> None:
    """Import a disk FILE under one or more names.

    Raw and qcow2 are read, also compressed with gzip, xz, zstd or bzip2.
    """
    line = ProgressLine()
    found = _run(
        lambda: _store(layout).import_disk(file, references, progress=_show_in(line)), line
    )
    click.echo(f"imported {found.reference}: {found.format}, {size(found.virtual_size)}")


@image.command(epilog="\b\nExample:\n  corral image pull kubevirt/cirros-container-disk-demo")
@click.argument("reference")
@data_directory
@click.option(
    "--docker-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Credentials for registries, as docker login writes them.",
)
def pull(layout: Layout, reference: str, docker_config: Path | None) -> None:
    """Fetch a container disk from its registry, before a machine needs it."""
    present = _store(layout).find(reference)
    if present and present.source == "import":
        removal = shlex.join(["corral", "image", "rm", *layout.option, reference])
        raise Problem(
            f"{present.reference} was imported, and an import stands in for the registry's image",
            f"To pull it instead: {removal}, then pull again.",
        )
    line = ProgressLine()
    secret = {DOCKER_CONFIG_JSON: docker_config.read_bytes()} if docker_config else {}

    async def fetch() -> Image:
        credentials = from_secret(str(docker_config), secret) if secret else ()
        return await _store(layout).ensure(
            reference, policy="Always", credentials=credentials, progress=_show_in(line)
        )

    found = _run(fetch, line)
    click.echo(f"pulled {found.reference}: {found.format}, {size(found.virtual_size)}")


@image.command("ls", epilog="\b\nExample:\n  corral image ls")
@data_directory
def list_(layout: Layout) -> None:
    """List the images of this machine."""
    store = _store(layout)
    rows = [
        (each.reference, each.digest[7:19], each.format, size(each.size), size(each.virtual_size),
         each.source)
        for each in store.images()
    ]  # fmt: skip
    if lost := store.lost_names():
        click.echo(f"warning: {lost}.", err=True)
    if not rows:
        demo = shlex.join(["corral", "image", "build-demo", *layout.option])
        click.echo(f"No images yet: {demo} makes one.", err=True)
        return
    click.echo(table(("IMAGE", "DISK", "FORMAT", "SIZE", "GUEST SEES", "SOURCE"), rows))


@image.command(
    epilog="\b\nExample:\n  corral image tag kubevirt/cirros-container-disk-demo lab/linux:1"
)
@click.argument("reference")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_directory
def tag(layout: Layout, reference: str, names: tuple[str, ...]) -> None:
    """Add NAMEs to the disk of a local image.

    Nothing is built or copied.  The names are as if the disk had been imported under them: they
    need no registry, and all users may use them.
    """
    _run(partial(_store(layout).tag, reference, names), ProgressLine())
    for name in names:
        click.echo(f"{name} is {reference}")


@image.command("rm", epilog="\b\nExample:\n  corral image rm lab/debian:12")
@click.argument("references", metavar="REFERENCE...", nargs=-1, required=True)
@data_directory
def remove(layout: Layout, references: tuple[str, ...]) -> None:
    """Remove images; machines that run from them are not affected."""
    store = _store(layout)
    for reference in references:
        _run(partial(store.remove, reference), ProgressLine())
        click.echo(f"removed {reference}")


def _store(layout: Layout) -> ImageStore:
    layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return ImageStore(layout.images, destinations=ANYWHERE, option=layout.option)


def _show_in(line: ProgressLine) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        total = f" of {size(progress.total_bytes)}" if progress.total_bytes else ""
        line.show(f"{progress.stage}: {size(progress.done_bytes)}{total}")

    return show


def _run(work: Callable[[], Awaitable[T]], line: ProgressLine) -> T:
    async def run() -> T:
        return await work()

    try:
        return asyncio.run(run())
    except (ImageError, DemoError) as error:
        line.clear()
        raise Problem(error.message, error.hint) from error
    finally:
        line.clear()
