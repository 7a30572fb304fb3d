"""``corral ssh`` and ``corral scp``: this host's ssh and scp, through the API server.

Both run with ``corral port-forward --stdio`` as their ProxyCommand, as virtctl does, so that
OpenSSH handles keys, agents and terminals.
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
from corral.cli.virtctl.target import Target, parse_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of both ssh and scp; an empty text leaves the default to OpenSSH."""

    username: str = ""
    identity_file: str = ""
    port: int = 22
    local_ssh_opts: Sequence[str] = ()
    known_hosts: str = ""


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination for OpenSSH: ``[USER@]TYPE.NAME.NAMESPACE``."""

    machine: Target
    username: str

    def __str__(self) -> str:
        host = f"{self.machine.kind}.{self.machine.name}.{self.machine.namespace}"
        return f"{self.username}@{host}" if self.username else host


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of both ssh and scp."""
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
    ssh_options = Options(**chosen)
    remote = parse_destination(machine, session.namespace, ssh_options.username)
    rest = [str(remote), command] if command else [str(remote)]
    _run(session, "ssh", arguments(remote, ssh_options, ["--", *rest]))


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
    ssh_options = Options(**chosen)
    remote, ends = scp_ends(source, destination, session.namespace, ssh_options.username)
    switches = ["-r"] * recursive + ["-p"] * preserve
    _run(session, "scp", arguments(remote, ssh_options, [*switches, "--", *ends]))


def parse_destination(text: str, namespace: str, username: str) -> Destination:
    """Parse ``[USER@]TYPE/NAME[/NAMESPACE]``.  Raises Problem."""
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise Problem("expected username before '@'")
    if not rest:
        raise Problem("expected target after '@'")
    user = user or username
    if user.startswith("-"):
        raise Problem(f"not a username: {user!r}", "OpenSSH would read it as an option.")
    return Destination(parse_target(rest, namespace), user)


def scp_ends(
    source: str, destination: str, namespace: str, username: str
) -> tuple[Destination, list[str]]:
    """Return the remote end, and both ends as scp's arguments.  Raises Problem."""
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
    parsed = parse_destination(machine, namespace, username)
    ends[remote[0]] = f"{parsed}:{path}"
    return parsed, ends


def arguments(remote: Destination, ssh_options: Options, rest: Sequence[str]) -> list[str]:
    """Return the arguments of ssh or scp.

    OpenSSH uses the first value of an option, so the user's options precede our known hosts.
    """
    forward = ["port-forward", "--stdio=true", str(remote.machine), str(ssh_options.port)]
    proxy = shlex.join([*self_command.COMMAND, *forward]).replace("%", "%%")
    known_hosts = str(Path(ssh_options.known_hosts).expanduser())
    identity = ["-i", ssh_options.identity_file] if ssh_options.identity_file else []
    return [
        "-o", f"ProxyCommand={proxy}",
        *ssh_options.local_ssh_opts,
        *(["-o", f"UserKnownHostsFile={_quote(known_hosts)}"] if ssh_options.known_hosts else ()),
        *identity,
        *rest,
    ]  # fmt: skip


def _quote(path: str) -> str:
    """Quote a path for an OpenSSH option."""
    escaped = path.replace("%", "%%")
    return f'"{escaped}"' if " " in escaped else escaped


def _run(session: Session, program: str, given: Sequence[str]) -> NoReturn:
    """Exec the program, with an environment that selects the same cluster for its ProxyCommand."""
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
