"""``corral up``: run the manager in the foreground, in the background or by systemd."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from corral.cli import hints
from corral.cli.address_options import (
    Address,
    BindAddress,
    Cidrs,
    Ports,
    Ranges,
    WebUrl,
    format_ranges,
)
from corral.cli.config_file import config_option
from corral.cli.errors import Problem, from_os_error
from corral.cli.manager import leftover_machines, systemd_unit
from corral.cli.manager.backup import require_complete_restore, require_store
from corral.cli.manager.detach import print_summary, report_to, start_detached
from corral.cli.manager.eviction_options import pressure_options
from corral.cli.manager.network_options import network_options
from corral.cli.manager.overcommit_option import overcommit_option
from corral.cli.manager.sd_notify import Notifier, notifying
from corral.cli.manager.up_settings import settings_of
from corral.cli.options import data_directory
from corral.config import BACKENDS, POD_CIDRS, SERVICE_CIDRS, VXLAN, Layout, Settings
from corral.daemon import lock
from corral.daemon.disk_reserve import Reserve
from corral.daemon.private_files import make_private

BIND = "127.0.0.1:6443"
"""Default address of the API, for the first start."""


def _bind_address(
    context: click.Context, parameter: click.Parameter, value: tuple[str, int] | None
) -> tuple[str, int]:
    """Return the address of the option, else of the last start, else the default."""
    if value is not None:
        return value
    if last := hints.bind(context.params["layout"]):
        context.set_parameter_source("bind", ParameterSource.DEFAULT_MAP)
    return BindAddress().convert(last or BIND, parameter, context)


@click.command(
    epilog="\b\nExample:\n  corral up\n"
    "  corral up --detach --data-dir ~/lab --bind 127.0.0.1:7443\n"
    "  corral up --systemd --audit-log /var/log/corral-audit.log"
)
@config_option
@data_directory
@click.option(
    hints.BIND,
    type=BindAddress(),
    default=None,
    callback=_bind_address,
    help=f"Where the API listens.  [default: as last time, at first {BIND}]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 50),
    metavar="NUMBER",
    default=1,
    show_default=True,
    help="How many nodes this process plays.",
)
@click.option(
    "--detach/--no-detach", default=False, help="Run in the background; return when it is ready."
)
@click.option(
    "--systemd",
    is_flag=True,
    help="Let systemd run it with these options, now and at every boot; corral stop --systemd "
    "takes that back.",
)
@click.option(
    "--boots",
    type=click.IntRange(1),
    metavar="NUMBER",
    default=None,
    help="How many guests may boot at once on a node.  [default: by its accelerator]",
)
@click.option(
    "--cpu-allocation-ratio",
    type=click.IntRange(1),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many virtual processors share a real one, where a machine requests no cpu; 250 packs "
    "densely. The KubeVirt object's cpuAllocationRatio goes before it.",
)
@pressure_options
@overcommit_option
@click.option(
    "--network/--no-network",
    default=True,
    help="Give machines addresses, Services and names, or else QEMU's user network alone.",
    show_default=True,
)
@click.option(
    "--network-backend",
    type=click.Choice(BACKENDS),
    default=VXLAN,
    show_default=True,
    help="How machines of different hosts reach each other; wireguard encrypts, host-gw needs "
    "hosts on one link, none leaves routes to you, cni the network of machines to the host's CNI "
    "plugins.",
)
@network_options
@click.option(
    "--pod-cidr",
    type=Ranges(),
    default=None,
    help="The addresses of machines; IPv6 goes with IPv4 unless you name it, where the host has it."
    f"  [default: as last time, at first {format_ranges(POD_CIDRS)}]",
)
@click.option(
    "--service-cidr",
    type=Ranges(),
    default=None,
    help="The addresses of Services.  [default: as last time, at first "
    f"{format_ranges(SERVICE_CIDRS)}]",
)
@click.option(
    "--service-address",
    type=Address(),
    default="127.0.0.1",
    show_default=True,
    help="Where NodePort and LoadBalancer Services listen on this host.",
)
@click.option(
    "--keep-ports",
    "kept_ports",
    type=Ports(),
    default=(),
    help="Ports of this host that only Services of administrators may take, besides those below"
    " 1024.  [default: none]",
)
@click.option(
    "--allow-destination",
    "allowed_destinations",
    type=Cidrs(),
    default=(),
    help="Addresses of this host, of the cluster or of a cloud's metadata that downloads and guests"
    " may reach, as a registry on 127.0.0.1.  [default: none]",
)
@click.option(
    "--host-disks",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    metavar="DIRECTORY",
    help="Directory of disk images for hostDisk volumes.  [default: none]",
)
@click.option(
    "--shared-storage",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    metavar="DIRECTORY",
    help="Directory that several hosts mount, for claims of the class corral-shared.  "
    "[default: none]",
)
@click.option(
    "--prometheus",
    type=WebUrl(),
    default="",
    metavar="URL",
    help="Prometheus for the custom and external metrics of autoscalers.  [default: none]",
)
@click.option(
    "--metric-rules",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Queries of the metrics.  [default: the series of a metric's name]",
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write an audit log, as JSON lines.  [default: none]",
)
@click.option(
    "--audit-policy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Audit policy (audit.k8s.io/v1).  [default: metadata of all requests from outside]",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help='Further users, a line for each: token,user,uid,"group1,group2".  [default: none]',
)
@click.option(
    "--new-store",
    is_flag=True,
    help="Begin without objects where the store is missing beside other data.",
)
@click.option("--verbose", is_flag=True, help="Log more.")
@click.option(
    "--machine",
    type=click.Choice(["qemu", "hollow"]),
    default="qemu",
    show_default=True,
    help="What runs machines; hollow simulates them: nothing boots, for tests of scale.",
)
@click.option("--hollow-boot-seconds", type=click.FloatRange(0), default=0.0, hidden=True)
@click.option("--hollow-failure-rate", type=click.FloatRange(0, 1), default=0.0, hidden=True)
@click.option("--hollow-seed", type=int, default=0, hidden=True)
@click.option("--controllers/--no-controllers", default=True, hidden=True)
@click.option("--ready-fd", type=int, default=None, hidden=True)
def up(
    *,
    layout: Layout,
    detach: bool,
    systemd: bool,
    ready_fd: int | None,
    verbose: bool,
    **chosen: Any,
) -> None:
    """Run corral: the API server, the controllers, and the machines of this host.

    Machines that still run from an earlier time are taken over. Their addresses stay: other ranges
    than last time can be had after corral down.
    """
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if systemd:
        for line in systemd_unit.install(layout, hints.options(click.get_current_context())):
            click.echo(line)
        return
    if detach:
        print_summary(start_detached(layout))
        return
    if ready_fd is None:
        _lock_and_run(layout, chosen, print_summary, verbose=verbose)
        return
    with os.fdopen(ready_fd, "w") as parent:
        try:
            announce = partial(report_to, parent)
            _lock_and_run(layout, chosen, announce, log=layout.log, verbose=verbose)
        except (Problem, OSError, ExceptionGroup) as error:
            problem = error if isinstance(error, Problem) else from_os_error(error)
            report_to(parent, {"error": problem.message, "hint": problem.hint})
            # Not to the log, which may be that of a running manager: the parent prints it.
            raise click.exceptions.Exit(problem.exit_code) from error


@dataclass(frozen=True, slots=True)
class _Ready:
    """Called when the manager is ready: stores its options, notifies systemd, announces it."""

    layout: Layout
    given: list[str]
    notifier: Notifier
    announce: Callable[[dict[str, str]], None]

    def __call__(self, summary: dict[str, str]) -> None:
        if absent := hints.missing_options(self.layout, self.given):
            summary |= {"left out": f"{absent}, which the last start had"}
        hints.remember(self.layout, self.given)
        self.notifier.ready(f"The API is {summary['API']}")
        self.announce(summary)


def _lock_and_run(
    layout: Layout,
    chosen: dict[str, Any],
    announce: Callable[[dict[str, str]], None],
    *,
    log: Path | None = None,
    verbose: bool,
) -> None:
    """Lock the data directory, check it, and run the manager."""
    address, port = chosen["bind"]
    try:
        with (
            notifying() as notifier,
            lock.acquire(layout.lock, url=f"https://{_host(address)}:{port}"),
        ):
            Reserve(layout.reserve).make_way()
            make_private(layout)
            require_complete_restore(layout)
            if not chosen["new_store"]:
                require_store(layout)
            ready = _Ready(layout, hints.options(click.get_current_context()), notifier, announce)
            _run(settings_of(layout, chosen), ready, log=log, verbose=verbose)
        if log is None:
            click.echo(_ended(layout))
    except lock.AlreadyRunning as other:
        process = f" (process {other.manager.pid}, {other.manager.url})" if other.manager else ""
        raise Problem(
            f"corral runs already on {layout.root}{process}",
            f"{hints.command_line('stop', layout)} ends it; --data-dir chooses another place.",
        ) from other


def _ended(layout: Layout) -> str:
    """Return the last message of a manager in the foreground: machines may run on."""
    leftover = leftover_machines.running_on(layout)
    if not leftover:
        return "The manager has ended."
    return f"The manager has ended; {leftover}.\n{leftover_machines.next_commands(layout)}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _run(
    settings: Settings,
    announce: Callable[[dict[str, str]], None],
    *,
    log: Path | None,
    verbose: bool,
) -> None:
    from corral import logs  # noqa: PLC0415  a second of imports that --detach does not need
    from corral.daemon.errors import CannotStart  # noqa: PLC0415
    from corral.daemon.network import Networking  # noqa: PLC0415
    from corral.daemon.run import run  # noqa: PLC0415

    logs.configure(log, verbose=verbose)
    network = Networking.join(settings)  # before threads start: setns(2) is per thread
    try:
        asyncio.run(run(settings, network, announce))
    except CannotStart as error:
        raise Problem(error.message, error.hint) from error
