"""``corral claim`` and ``corral release``: a machine of a warm pool, and its end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.corral.claim import VirtualMachineClaim
from corral.api.kinds.corral.claim_validation import LARGEST_INLINE
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.client.claim import (
    PENDING_TIMEOUT,
    ClaimError,
    Request,
    WarmPoolMissing,
    deleted,
    ready,
)
from corral.client.client import Client

Claim = VirtualMachineClaim


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral claim spares --ttl 10m\n"
    "  corral claim spares --name job-7 --ttl 10m --user-data setup.sh\n"
    "  kubectl wait vmclaim job-7 --for condition=AgentConnected --timeout 5m\n"
    "  pod=$(kubectl get vmclaim job-7 -o jsonpath={.status.vmi.podName})\n"
    "  kubectl exec $pod -- uname -a\n"
    "  corral release job-7",
)
@click.argument("pool")
@click.option("--name", default="", help="Name of the claim.  [default: POOL-xxxxx]")
@click.option("--ttl", default="", metavar="DURATION", help="How long to keep it, such as 10m.")
@click.option(
    "--pending-timeout",
    default=PENDING_TIMEOUT,
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a machine, such as 5m.",
)
@click.option(
    "--user-data",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="A script that the guest runs at once; - reads it from the standard input.",
)
@click.option("--user-data-secret", default="", help="A Secret with the script, key userdata.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["name", "machine", "pod", "address"]),
    help="Print this alone.",
)
@options.session
def claim(
    *,
    session: Session,
    pool: str,
    name: str,
    ttl: str,
    pending_timeout: str,
    user_data: Path | None,
    user_data_secret: str,
    output: str | None,
) -> None:
    """Get a machine of a warm pool, and wait until it can be used.

    It is yours until you release it, or its time is over.  Without one there is no claim left, and
    the exit code is 1.
    """
    request = Request(
        pool=pool,
        name=name,
        ttl=ttl,
        pending_timeout=pending_timeout,
        user_data=_script(user_data),
        user_data_secret=user_data_secret,
    )
    bound = asyncio.run(_claim(session, request))
    for line in _lines(bound, output):
        click.echo(line)


@click.command(cls=options.Command, epilog="\b\nExample:\n  corral release job-7")
@click.argument("name")
@click.option("--wait/--no-wait", default=True, help="Wait until the machine is gone.")
@options.session
def release(*, session: Session, name: str, wait: bool) -> None:
    """Give a claimed machine back: it is thrown away with its disks, and nobody gets it again."""

    async def give_back() -> None:
        async with session.client() as client:
            current = await client.get(Claim, name, session.namespace)
            if wait:
                await deleted(client, current.key, current.metadata.uid)
            else:
                await client.delete(Claim, current.key, uid=current.metadata.uid)

    with session.api_errors(f"error releasing claim {name}"):
        asyncio.run(give_back())
    click.echo(f"claim {name} released")


def _script(path: Path | None) -> str:
    """Return the user data in a file.  Raises Problem."""
    if path is None:
        return ""
    try:
        with click.open_file(str(path), "rb") as file:
            content = file.read(LARGEST_INLINE + 1)
        text: str = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"--user-data: {path} cannot be read: {error}") from error
    if len(content) > LARGEST_INLINE:
        raise Problem(
            f"--user-data: {path} has more than {LARGEST_INLINE} bytes",
            "Name a Secret of it with --user-data-secret: "
            "kubectl create secret generic NAME --from-file=userdata=FILE makes one.",
        )
    return text


async def _claim(session: Session, request: Request) -> Claim:
    """Create a claim and wait for its machine; delete it if that fails."""
    with session.api_errors(f"error claiming a machine of warm pool {request.pool}"):
        async with session.client() as client:
            created = await client.create(Claim, request.document(), session.namespace)
            try:
                return await ready(client, created, lambda why: click.echo(why, err=True))
            except BaseException as error:  # an interrupt, too
                await asyncio.shield(_abandon(client, created))
                if isinstance(error, ClaimError):
                    is_missing = isinstance(error, WarmPoolMissing)
                    hint = "kubectl get vmwp lists the warm pools." if is_missing else ""
                    raise Problem(str(error), hint) from error
                raise


async def _abandon(client: Client, created: Claim) -> None:
    try:
        await client.delete(Claim, created.key, uid=created.metadata.uid)
    except NotFound:
        return  # it has expired
    except ApiError:
        name = created.metadata.name
        click.echo(f"claim {name} is still there: corral release {name}", err=True)


def _lines(bound: Claim, output: str | None) -> Iterator[str]:
    status = bound.status
    assert status.vmi is not None
    address = next(iter(status.addresses), "")
    values = {
        "name": bound.metadata.name,
        "machine": status.vmi.name,
        "pod": status.vmi.pod_name,
        "address": address,
        "ssh": status.ssh,
        "expires": status.expires_at or "",
    }
    if output is not None:
        yield values[output]
        return
    for name, value in values.items():
        if value:
            yield f"{name:<9}{value}"
