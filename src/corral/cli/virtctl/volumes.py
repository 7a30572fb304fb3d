"""``corral addvolume`` and ``corral removevolume``: hotplug of disks."""

import asyncio
import random
from typing import Final

import click
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.power import dry_run
from corral.cli.virtctl.target import Target
from corral.client.client import Client

MAX_NAME_LENGTH = 63
CACHES: Final = ("none", "writethrough", "writeback")
BUSES: Final = {"disk": ("scsi", "virtio"), "lun": ("scsi",)}
_TRIES = 15
_CONFLICT: Final = "the server rejected our request due to an error in our request"
"""KubeVirt's response if another client changes the volumes concurrently."""


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral addvolume testvm --volume-name=example-dv\n"
    "  corral addvolume testvm --volume-name=example-dv --disk-name=data \\\n"
    "    --bus=virtio\n"
    "  corral addvolume testvm --volume-name=example-dv --serial=1234 --cache=none",
)
@click.argument("name")
@click.option("--volume-name", required=True, help="The DataVolume, or the claim.")
@click.option("--disk-name", default="", help="Name of disk and volume in the spec.")
@click.option("--serial", default="", help="Serial number that the guest reads.")
@click.option("--cache", default="", help="none, writethrough or writeback.")
@click.option("--disk-type", default="disk", show_default=True, help="disk or lun.")
@click.option("--bus", default="scsi", show_default=True, help="scsi or virtio.")
@click.option("--persist", is_flag=True, help="Without effect: a VirtualMachine keeps the volume.")
@dry_run
@options.session
def addvolume(
    *, session: Session, name: str, volume_name: str, disk_name: str, serial: str, cache: str,
    disk_type: str, bus: str, persist: bool, dry_run: bool,  # noqa: ARG001 - virtctl's
) -> None:  # fmt: skip
    """Plug a disk into a machine that runs; a VirtualMachine keeps it."""
    _require_disk(disk_type, bus, cache)
    volume = disk_name or volume_name
    _require_short(volume, is_disk_name=bool(disk_name))
    disk: Document = {disk_type: {"bus": bus}, "serial": serial or volume}
    if cache:
        disk["cache"] = cache
    request: Document = {"name": volume, "disk": disk}
    asyncio.run(_add(session, name, volume_name, request, dry=dry_run))
    click.echo(f"Successfully submitted add volume request to VM {name} for volume {volume_name}")


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n  corral removevolume testvm --volume-name=example-dv",
)
@click.argument("name")
@click.option("--volume-name", required=True, help="The volume, or the claim that it shows.")
@click.option("--persist", is_flag=True, help="Without effect: a VirtualMachine forgets it, too.")
@dry_run
@options.session
def removevolume(
    *,
    session: Session,
    name: str,
    volume_name: str,
    persist: bool,  # noqa: ARG001 - virtctl's
    dry_run: bool,
) -> None:
    """Take a disk out of a machine that runs."""
    request: Document = {"name": volume_name}
    asyncio.run(_request(session, name, "removevolume", "removing", request, dry=dry_run))
    click.echo(
        f"Successfully submitted remove volume request to VM {name} for volume {volume_name}"
    )


def _require_disk(disk_type: str, bus: str, cache: str) -> None:
    """Raises Problem, with virtctl's messages."""
    allowed = BUSES.get(disk_type)
    if allowed is None:
        raise Problem(f"Invalid disk type '{disk_type}'. Only LUN and Disk are supported.")
    if bus not in allowed and disk_type == "lun":
        raise Problem(f"Invalid bus type '{bus}' for LUN disk. Only 'scsi' bus is supported.")
    if bus not in allowed:
        message = f"Invalid bus type '{bus}' for disk. Only 'scsi' and 'virtio' are supported."
        raise Problem(message)
    if cache and cache not in CACHES:
        raise Problem(f"error adding volume, invalid cache value {cache}")


def _require_short(volume: str, *, is_disk_name: bool) -> None:
    """Raises Problem, with virtctl's messages."""
    if len(volume) <= MAX_NAME_LENGTH:
        return
    kind = "disk" if is_disk_name else "volume"
    hint = "" if is_disk_name else "Use in conjunction with --disk-name to specify a shorter name"
    raise Problem(
        f"Invalid {kind} name {volume}, must not exceed {MAX_NAME_LENGTH} characters", hint
    )


async def _add(session: Session, name: str, source: str, request: Document, *, dry: bool) -> None:
    with session.api_errors("error adding volume"):
        async with session.client() as client:
            request["volumeSource"] = await _source(client, source, session.namespace)
    await _request(session, name, "addvolume", "adding", request, dry=dry)


async def _source(client: Client, name: str, namespace: str) -> Document:
    """Return the source of a volume: a DataVolume, else a claim.  Raises Problem for neither."""
    try:
        await client.get(DataVolume, name, namespace)
    except NotFound:
        try:
            await client.get(PersistentVolumeClaim, name, namespace)
        except NotFound as error:
            message = f"Volume {name} is not a DataVolume or PersistentVolumeClaim"
            hint = f"kubectl get dv,pvc -n {namespace} lists what is there."
            raise Problem(f"error adding volume, {message}", hint) from error
        return {"persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
    return {"dataVolume": {"name": name, "hotpluggable": True}}


async def _request(
    session: Session, name: str, subresource: str, gerund: str, request: Document, *, dry: bool
) -> None:
    """Request a change of the VM, or of the VMI if there is no VM; retries on conflicts."""
    if dry:
        request["dryRun"] = ["All"]
        click.echo("Dry Run execution")
    with session.api_errors(f"error {gerund} volume"):
        async with session.client() as client:
            for number in range(_TRIES):
                if await _put(client, name, session.namespace, subresource, request):
                    return
                await asyncio.sleep(number * random.uniform(0, 0.005))  # noqa: S311 - no secret
    raise Problem(f"error {gerund} volume after {_TRIES} retries")


async def _put(
    client: Client, name: str, namespace: str, subresource: str, request: Document
) -> bool:
    """Send the request; False on a conflict with another client."""
    try:
        try:
            await client.request(
                "PUT", Target("vm", name, namespace).path(subresource), document=request
            )
        except NotFound:
            path = Target("vmi", name, namespace).path(subresource)
            await client.request("PUT", path, document=request)
    except ApiError as error:
        if _CONFLICT not in str(error):
            raise
        return False
    return True
