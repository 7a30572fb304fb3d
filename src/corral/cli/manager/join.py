"""``corral join`` and ``corral node``: run the node agent alone, for an API server elsewhere."""

import os
import re
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from corral.api.kinds.auth import bootstrap_token
from corral.api.names import subdomain_faults
from corral.api.object import Document
from corral.api.time import parse_duration
from corral.cli import hints
from corral.cli.address_options import Address
from corral.cli.config_file import config_option
from corral.cli.errors import Problem, from_os_error
from corral.cli.manager import leftover_machines, systemd_unit
from corral.cli.manager.detach import print_summary, report_to, start_detached
from corral.cli.manager.eviction_options import eviction_hard, pressure_options
from corral.cli.manager.network_options import network_options
from corral.cli.manager.overcommit_option import overcommit_option
from corral.cli.manager.sd_notify import notifying
from corral.cli.options import data_directory
from corral.config import Hollow, Layout, Settings
from corral.daemon import lock
from corral.daemon.private_files import make_private

if TYPE_CHECKING:  # a second of imports
    from corral.daemon.membership import Membership
    from corral.daemon.node_process import NodeProcess

C = TypeVar("C", bound=Callable[..., Any])
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class _Label(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE``."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, separator, text = str(value).partition("=")
        if not key or not separator:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


class _Taint(click.ParamType[Document]):
    """``KEY[=VALUE]:EFFECT``, as kubectl taint takes it."""

    name = "key=value:effect"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Document:
        left, separator, effect = str(value).rpartition(":")
        key, _, text = left.partition("=")
        if not key or not separator or effect not in _EFFECTS:
            self.fail(
                f"{value!r} is not KEY[=VALUE]:EFFECT with an effect of {', '.join(_EFFECTS)}",
                param,
                ctx,
            )
        return {"key": key, "effect": effect, **({"value": text} if text else {})}


def node_options(command: C) -> C:
    """Add the options of a node alone."""
    options = (
        click.option(
            "--name", default=None, help="The node's name.  [default: this host's, in lower case]"
        ),
        click.option(
            "--address",
            default=None,
            metavar="ADDRESS",
            help="Where other hosts reach this one.  [default: this host's address on the way to "
            "the server]",
        ),
        click.option(
            "--port",
            metavar="NUMBER",
            type=click.IntRange(1, 65535),
            default=10250,
            show_default=True,
            help="Where the node's own API listens, as a kubelet's.",
        ),
        click.option(
            "--label",
            "labels",
            type=_Label(),
            multiple=True,
            help="A label that the Node is created with; may be repeated.",
        ),
        click.option(
            "--taint",
            "taints",
            type=_Taint(),
            multiple=True,
            metavar="KEY[=VALUE]:EFFECT",
            help="A taint that the Node is created with; may be repeated.",
        ),
        click.option(
            "--boots",
            type=click.IntRange(1),
            metavar="NUMBER",
            default=None,
            help="How many guests may boot at once.  [default: by the accelerator]",
        ),
        click.option(
            "--network/--no-network",
            default=True,
            show_default=True,
            help="Give machines addresses, Services and names, or else QEMU's user network alone.",
        ),
        network_options,
        click.option(
            "--service-address",
            type=Address(),
            default="127.0.0.1",
            show_default=True,
            help="Where NodePort and LoadBalancer Services listen on this host.",
        ),
        pressure_options,
        overcommit_option,
        click.option(
            "--host-disks",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            default=None,
            metavar="DIRECTORY",
            help="Whose files machines may have as disks (hostDisk).  [default: none]",
        ),
        click.option(
            "--machine",
            type=click.Choice(["qemu", "hollow"]),
            default="qemu",
            show_default=True,
            help="What runs machines; hollow simulates them.",
        ),
        click.option("--hollow-boot-seconds", type=click.FloatRange(0), default=0.0, hidden=True),
        click.option(
            "--detach/--no-detach",
            default=False,
            help="Run in the background; return when it is ready.",
        ),
        click.option(
            "--systemd",
            is_flag=True,
            help="Let systemd run it with these options, now and at every boot; corral stop "
            "--systemd takes that back.",
        ),
        click.option("--verbose", is_flag=True, help="Log more."),
        click.option("--ready-fd", type=int, default=None, hidden=True),
    )
    for option in reversed(options):
        command = option(command)
    return config_option(data_directory(command))


@click.command(
    epilog="\b\nExample:\n"
    "  corral join https://192.0.2.1:6443 --token abcdef.0123456789abcdef \\\n"
    "      --ca-hash sha256:… --detach\n"
    "  corral join"
)
@click.argument("server", metavar="[URL]", required=False)
@click.option("--token", help="A token of the cluster: corral token create prints one.")
@click.option("--ca-hash", help="The hash of the cluster's authority, sha256:…")
@click.option(
    "--shared-storage",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    metavar="DIRECTORY",
    help="Where this host mounts the shared directory of corral up --shared-storage.  "
    "[default: none]",
)
@node_options
def join(
    layout: Layout, server: str | None, token: str | None, ca_hash: str | None, **chosen: Any
) -> None:
    """Join this host to the corral of another, and run its machines here.

    A host that has joined needs no token any more: corral join alone goes on. Machines that still
    run from an earlier time are taken over.
    """
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_valid(server, token, ca_hash)

    async def entering(layout: Layout, name: str) -> "Membership":
        from corral.daemon.node_process import enter  # noqa: PLC0415

        return await enter(layout, name, server=server, token=token, ca_hash=ca_hash)

    start(layout, chosen, NodeKind(server=server or "", enter=entering))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """A way for a node to enter its cluster.

    server: the API server's URL, as far as known; settings, process: change what the node is opened
    from.
    """

    server: str
    enter: Callable[[Layout, str], Coroutine[Any, Any, "Membership"]]
    settings: Callable[[Settings], Settings] = lambda settings: settings
    process: Callable[["NodeProcess"], "NodeProcess"] = lambda process: process


def start(layout: Layout, chosen: dict[str, Any], kind: NodeKind) -> None:
    """Run a node in the foreground or in the background.  Raises Problem."""
    detach, ready_fd = chosen["detach"], chosen["ready_fd"]
    if chosen["systemd"]:
        _enter_by_systemd(layout, chosen, kind)
        return
    if detach:
        print_summary(start_detached(layout))
        return
    if ready_fd is None:
        _lock_and_run(layout, chosen, kind, print_summary)
        return
    with os.fdopen(ready_fd, "w") as parent:
        try:
            _lock_and_run(layout, chosen, kind, partial(report_to, parent), log=layout.log)
        except (Problem, OSError, ExceptionGroup) as error:
            problem = error if isinstance(error, Problem) else from_os_error(error)
            report_to(parent, {"error": problem.message, "hint": problem.hint})
            raise click.exceptions.Exit(problem.exit_code) from error


def _enter_by_systemd(layout: Layout, chosen: dict[str, Any], kind: NodeKind) -> None:
    """Enter the cluster, so that the unit needs no token, and write and start the unit."""
    import asyncio  # noqa: PLC0415

    from corral.daemon.errors import CannotStart  # noqa: PLC0415

    _require_valid_start(layout, chosen)
    try:
        asyncio.run(kind.enter(layout, _name(chosen)))
    except CannotStart as error:
        raise Problem(error.message, error.hint) from error
    context = click.get_current_context()
    for line in systemd_unit.install(layout, hints.options(context), str(context.info_name)):
        click.echo(line)


def _lock_and_run(
    layout: Layout,
    chosen: dict[str, Any],
    kind: NodeKind,
    announce: Callable[[dict[str, str]], None],
    *,
    log: Path | None = None,
) -> None:
    """Run the agent, alone on its data directory."""
    _require_valid_start(layout, chosen)
    context = click.get_current_context()
    given = [context.info_name or "join", *hints.options(context)]
    try:
        with notifying() as notifier, lock.acquire(layout.lock, url=kind.server):
            make_private(layout)

            def ready(summary: dict[str, str]) -> None:
                if absent := hints.missing_options(layout, given):
                    summary |= {"left out": f"{absent}, which the last start had"}
                hints.remember(layout, given)
                notifier.ready(summary["headline"])
                announce(summary)

            _run(layout, chosen, kind, ready, log=log)
        if log is None:
            many = leftover_machines.running_on(layout)
            click.echo(f"The agent has ended{f'; {many}' if many else ''}.")
    except lock.AlreadyRunning as other:
        who = f" (process {other.manager.pid})" if other.manager else ""
        raise Problem(
            f"corral runs already on {layout.root}{who}",
            f"{hints.command_line('stop', layout)} ends it; --data-dir chooses another place.",
        ) from other


def _run(
    layout: Layout,
    chosen: dict[str, Any],
    kind: NodeKind,
    announce: Callable[[dict[str, str]], None],
    *,
    log: Path | None,
) -> None:
    import asyncio  # noqa: PLC0415

    from corral import logs  # noqa: PLC0415  a second of imports that --detach can spare
    from corral.daemon.errors import CannotStart  # noqa: PLC0415
    from corral.daemon.network import Networking  # noqa: PLC0415
    from corral.daemon.node_process import (  # noqa: PLC0415
        NodeProcess,
        address_towards,
        settings_in,
    )
    from corral.node.status.node_status import Registration  # noqa: PLC0415

    logs.configure(log, verbose=chosen["verbose"])
    try:
        member = asyncio.run(kind.enter(layout, _name(chosen)))
        settings = kind.settings(settings_in(_settings(layout, chosen), member))
        registration = Registration(
            address=chosen["address"] or address_towards(member.server),
            kubelet_port=chosen["port"],
            labels=dict(chosen["labels"]),
            taints=chosen["taints"],
        )
        settings = replace(settings, node_address=registration.address)
        networking = Networking.join(settings)  # while there is one thread
        process = NodeProcess(
            settings=settings,
            membership=member,
            networking=networking,
            registration=registration,
        )
        asyncio.run(kind.process(process).run(announce))
    except CannotStart as error:
        raise Problem(error.message, error.hint) from error


def _settings(layout: Layout, chosen: dict[str, Any]) -> Settings:
    hollow = Hollow(boot_seconds=chosen["hollow_boot_seconds"])
    shared: Path | None = chosen.get("shared_storage")  # not of corral node
    return Settings(
        directory=layout.root,
        hollow=hollow if chosen["machine"] == "hollow" else None,
        boots=chosen["boots"],
        eviction_hard=eviction_hard(chosen["eviction_hard"], chosen["machine"]),
        pressure_seconds=parse_duration(chosen["pressure_period"]),
        overcommit_percent=chosen["overcommit_percent"],
        network=chosen["network"],
        wireguard_port=chosen["wireguard_port"],
        cni_conf_dir=chosen["cni_conf_dir"].absolute(),
        cni_bin_dirs=chosen["cni_bin_dirs"],
        service_address=chosen["service_address"],
        host_disks=chosen["host_disks"].absolute() if chosen["host_disks"] else None,
        shared_storage=shared.absolute() if shared else None,
    )


def _name(chosen: dict[str, Any]) -> str:
    """Return the node's name."""
    return str(chosen["name"] or socket.gethostname().lower())


def _require_valid_start(layout: Layout, chosen: dict[str, Any]) -> None:
    """Raise Problem for a name that no Node can have, and for the directory of a manager."""
    if layout.store.exists():
        raise Problem(
            f"{layout.root} holds a cluster of its own (corral up)",
            "Choose another directory with --data-dir, or remove it after corral down.",
        )
    name = _name(chosen)
    if faults := subdomain_faults(name):
        raise Problem(f'"{name}" cannot be a node\'s name: {faults[0]}', "Choose one with --name.")


def _require_valid(server: str | None, token: str | None, ca_hash: str | None) -> None:
    """Raise Problem for arguments that no cluster takes."""
    if server and not server.startswith("https://"):
        raise Problem(f"{server} is not a URL that begins with https://")
    if token and bootstrap_token.parse(token) is None:
        raise Problem("--token is not of the form abcdef.0123456789abcdef")
    if ca_hash and not _HASH.fullmatch(ca_hash):
        raise Problem(f"--ca-hash {ca_hash}: a hash is sha256: and 64 hexadecimal digits")
