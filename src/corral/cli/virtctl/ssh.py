"""``corral ssh`` and ``corral scp``: this host's own programs, through the API server.

Both run with ``corral port-forward --stdio`` as their ProxyCommand, as virtctl does it: keys,
agents and terminals are OpenSSH's business.
"""

import os
import shlex
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from corral.cli import options, self_command
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.target import Target, target


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ssh and scp have in common; an empty text is left to OpenSSH."""

    username: str = ""
    identity_file: str = ""
    port: int = 22
    local_ssh_opts: Sequence[str] = ()
    known_hosts: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A machine as OpenSSH sees it: its host name there is ``TYPE.NAME.NAMESPACE``."""

    machine: Target
    username: str

    def __str__(self) -> str:
        host = f"{self.machine.kind}.{self.machine.name}.{self.machine.namespace}"
        return f"{self.username}@{host}" if self.username else host


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that ssh and scp have in common."""
    for option in (
        click.option(
            "--known-hosts", default="~/.ssh/kubevirt_known_hosts", show_default=True,
            help="Where the machines' host keys are remembered.",
        ),
        click.option(
            "-t", "--local-ssh-opts", multiple=True, metavar="OPTION",
            help="An option for this host's own program, e.g. '-o StrictHostKeyChecking=no'.",
        ),
        click.option(
            "-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", default=22,
            show_default=True,
            help="Port of the machine's ssh server.",
        ),
        click.option("-i", "--identity-file", default="", help="The private key to show."),
        click.option(
            "-l", "--username", envvar=("USER", "USERNAME", "LOGNAME"), default="",
            help="User to log in as.  [default: $USER]",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral ssh cirros@vmi/testvdk4x\n"
    "  corral ssh -i ~/.ssh/id_ed25519 -c uptime cirros@vmi/testvdk4x/default",
)
@click.argument("machine", metavar="[USER@]TYPE/NAME[/NAMESPACE]")
@_shared
@click.option("-c", "--command", default="", help="Run this in the machine, and no shell.")
@options.session
def ssh(*, session: Session, machine: str, command: str, **chosen: Any) -> None:
    """Log in to a machine with this host's ssh.

    The exit code is that of ssh.
    """
    wanted = Options(**chosen)
    place = place_of(machine, session.namespace, wanted.username)
    rest = [str(place), command] if command else [str(place)]
    _run(session, "ssh", arguments(place, wanted, ["--", *rest]))


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral scp notes.txt cirros@vmi/testvdk4x:notes.txt\n"
    "  corral scp -r cirros@vmi/testvdk4x:/var/log ./log",
)
@click.argument("source")
@click.argument("destination")
@_shared
@click.option("-r", "--recursive", is_flag=True, help="Copy whole directories.")
@click.option("--preserve", is_flag=True, help="Keep times and modes.")
@options.session
def scp(
    *,
    session: Session,
    source: str,
    destination: str,
    recursive: bool,
    preserve: bool,
    **chosen: Any,
) -> None:
    """Copy files to or from a machine with this host's scp.

    One of SOURCE and DESTINATION is [USER@]TYPE/NAME[/NAMESPACE]:PATH.
    """
    wanted = Options(**chosen)
    place, ends = scp_ends(source, destination, session.namespace, wanted.username)
    switches = ["-r"] * recursive + ["-p"] * preserve
    _run(session, "scp", arguments(place, wanted, [*switches, "--", *ends]))


def place_of(text: str, namespace: str, username: str) -> Place:
    """Read ``[USER@]TYPE/NAME[/NAMESPACE]``.  Raises Problem."""
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise Problem("expected username before '@'")
    if not rest:
        raise Problem("expected target after '@'")
    user = user or username
    if user.startswith("-"):
        raise Problem(f"not a username: {user!r}", "To OpenSSH it would be an option.")
    return Place(target(rest, namespace), user)


def scp_ends(
    source: str, destination: str, namespace: str, username: str
) -> tuple[Place, list[str]]:
    """The machine that scp speaks to, and both ends as scp wants them.  Raises Problem."""
    ends = [source, destination]
    remote = [index for index, end in enumerate(ends) if ":" in end]
    if len(remote) == len(ends):
        raise Problem(
            "copying from a remote location to another remote location is not supported: "
            f'"{source}" to "{destination}"'
        )
    if not remote:
        raise Problem(
            "none of the two provided locations seems to be a remote location: "
            f'"{source}" to "{destination}"',
            "Write the machine's as vmi/NAME:PATH.",
        )
    machine, _, path = ends[remote[0]].partition(":")
    place = place_of(machine, namespace, username)
    ends[remote[0]] = f"{place}:{path}"
    return place, ends


def arguments(place: Place, wanted: Options, rest: Sequence[str]) -> list[str]:
    """The arguments of ssh or scp.

    OpenSSH keeps the first value that it meets: the user's own options stand before our known
    hosts.
    """
    forward = ["port-forward", "--stdio=true", str(place.machine), str(wanted.port)]
    proxy = shlex.join([*self_command.COMMAND, *forward]).replace("%", "%%")
    known_hosts = str(Path(wanted.known_hosts).expanduser())
    identity = ["-i", wanted.identity_file] if wanted.identity_file else []
    return [
        "-o", f"ProxyCommand={proxy}",
        *wanted.local_ssh_opts,
        *(["-o", f"UserKnownHostsFile={_quoted(known_hosts)}"] if wanted.known_hosts else ()),
        *identity,
        *rest,
    ]  # fmt: skip


def _quoted(path: str) -> str:
    """A path as OpenSSH reads it in an option."""
    escaped = path.replace("%", "%%")
    return f'"{escaped}"' if " " in escaped else escaped


def _run(session: Session, program: str, given: Sequence[str]) -> NoReturn:
    """Become the program; what it starts speaks to the same cluster."""
    environment = os.environ | {"KUBECONFIG": str(session.path)}
    if session.context:
        environment["CORRAL_CONTEXT"] = session.context
    found = shutil.which(program)
    if found is None:
        raise Problem(
            f"there is no {program} on this host", "Install it: apt-get install openssh-client."
        )
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that is inherited
    os.execve(found, [program, *given], environment)  # noqa: S606
