"""``corral kubeconfig``: kubeconfigs of the administrator and of further users."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from corral import files
from corral.cli import hints
from corral.cli.errors import Problem
from corral.cli.options import data_directory
from corral.config import Layout

if TYPE_CHECKING:
    from corral.cli.manager.users import UserGrant

MAX_DAYS: Final = 365
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.@]{0,62}[A-Za-z0-9])?", re.ASCII)


class _Time(click.ParamType[timedelta]):
    """A duration: ``30d``, ``12h`` or ``90m``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        number, unit = str(value)[:-1], _UNITS.get(str(value)[-1:])
        if unit is None or not (number.isascii() and number.isdigit()) or len(number) > 6:
            self.fail(
                f"{value!r} is no time such as 30d, 12h or 90m: a whole number of days, hours or "
                "minutes", param, ctx,
            )  # fmt: skip
        time = timedelta(**{unit: int(number)})
        if not timedelta() < time <= timedelta(days=MAX_DAYS):
            self.fail(f"{value!r} must be more than nothing and at most {MAX_DAYS}d", param, ctx)
        return time


class _Name(click.ParamType[str]):
    """A name of a user or group that is valid in certificates, without Kubernetes' ``system:``."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _NAME.fullmatch(str(value)):
            self.fail(
                f"{value!r} must be 1 to 64 letters, digits and - _ . @, with a letter or a digit "
                "at both ends",
                param,
                ctx,
            )
        return str(value)


@click.command(
    epilog="\b\nExample:\n"
    "  export KUBECONFIG=$(corral kubeconfig)\n"
    "  corral kubeconfig --user lab1 --role edit --namespace lab1 > lab1.kubeconfig\n"
    "  corral kubeconfig --user lab1 --revoke"
)
@data_directory
@click.option("--user", type=_Name(), default=None, help="Make a kubeconfig of this user's own.")
@click.option("--group", "groups", type=_Name(), multiple=True, help="A group that the user is in.")
@click.option(
    "--role",
    default=None,
    metavar="ROLE",
    help="What the user may do: view, edit, admin, or any ClusterRole.",
)
@click.option(
    "-n",
    "--namespace",
    default=None,
    help="Namespace of the role and of the kubeconfig; it is created if missing.",
)
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Grant the role in all namespaces; --namespace is that of the kubeconfig only.",
)
@click.option(
    "--expires",
    type=_Time(),
    default="30d",
    show_default=True,
    help=f"How long the certificate is good, at most {MAX_DAYS}d.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Write the kubeconfig here, readable by you alone.  [default: standard output]",
)
@click.option(
    "--revoke", is_flag=True,
    help="Revoke the user's certificates, and delete the bindings that --role has made.",
)  # fmt: skip
@click.option(
    "--ca",
    is_flag=True,
    help="Print the path of the server's CA certificate, for programs that do not read kubeconfigs:"
    " SSL_CERT_FILE=$(corral kubeconfig --ca) virtctl image-upload …",
)
@click.option("--list", "listed", is_flag=True, help="List the users and roles of --role.")
def kubeconfig(
    *,
    layout: Layout,
    user: str | None,
    output: Path | None,
    revoke: bool,
    listed: bool,
    ca: bool,
    **chosen: Any,
) -> None:
    """Print the path of the kubeconfig that lets kubectl in; or make one for a further user.

    A user authenticates by a certificate with its own key, which corral does not keep. Without a
    role it may do nothing but discover the API.
    """
    if not layout.kubeconfig.exists():
        raise Problem(
            f"there is no {layout.kubeconfig} yet",
            f"Start corral first: {hints.up(layout)}",
        )
    for name, flag, purpose in (
        ("--list", listed, "lists all users"),
        ("--ca", ca, "prints a path"),
    ):
        if flag and (user is not None or output is not None or revoke or (listed and ca)):
            raise Problem(f"{name} {purpose}, and does nothing else", "Leave the rest out.")
    if user is None and not listed:
        _refuse_without_user(chosen, output, revoke=revoke)
        click.echo(layout.authority if ca else layout.kubeconfig)
        return
    from corral.cli.manager import users  # noqa: PLC0415  printing the path needs no client

    if user is None:
        click.echo(asyncio.run(users.list_grants(layout)) or "nobody")
    elif revoke:
        if chosen["role"]:
            raise Problem(
                f"--revoke takes all roles that were given to {user} by --role",
                "Leave --role out; kubectl delete rolebinding takes one of them.",
            )
        click.echo(asyncio.run(users.revoke(layout, user)), err=True)
    else:
        _require_directory(output)
        _write(asyncio.run(users.grant(layout, _user_grant(user, chosen))), output)


def _refuse_without_user(chosen: dict[str, Any], output: Path | None, *, revoke: bool) -> None:
    given = [f"--{name.replace('_', '-')}" for name in ("role", "namespace") if chosen[name]]
    given += ["--group"] * bool(chosen["groups"]) + ["--all-namespaces"] * chosen["all_namespaces"]
    given += ["--output"] * (output is not None) + ["--revoke"] * revoke
    if given:
        raise Problem(f"{given[0]} is about a further user, but none is named", "Add --user NAME.")


def _user_grant(user: str, chosen: dict[str, Any]) -> "UserGrant":
    from corral.cli.manager.users import UserGrant  # noqa: PLC0415

    role, namespace, everywhere = chosen["role"], chosen["namespace"], chosen["all_namespaces"]
    if role and not namespace and not everywhere:
        raise Problem(
            f"where may {user} {role}? Neither a namespace is named nor all are",
            "Add --namespace NAME or --all-namespaces.",
        )
    if everywhere and not role:
        raise Problem("--all-namespaces says where a role counts, but there is none", "Add --role.")
    return UserGrant(
        user=user,
        groups=tuple(dict.fromkeys(chosen["groups"])),
        role=role or "",
        namespace=namespace or "",
        everywhere=everywhere,
        lifetime=chosen["expires"],
    )


def _require_directory(output: Path | None) -> None:
    """Raises Problem for a file that cannot be written, before anything is granted."""
    if output is not None and not output.absolute().parent.is_dir():
        raise Problem(
            f"{output} cannot be written: there is no directory {output.absolute().parent}",
            "Make it first, or name another file.",
        )


def _write(content: bytes, output: Path | None) -> None:
    if output is None:
        click.echo(content, nl=False)
        return
    files.replace(output.absolute(), content)
    click.echo(f"{output} is ready: kubectl --kubeconfig {output} get vmi", err=True)
