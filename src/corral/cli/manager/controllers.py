"""``corral controllers``: the controllers alone, for an API server elsewhere."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from corral.api.object import Key
from corral.api.time import parse_duration
from corral.cli.address_options import BindAddress
from corral.cli.config_file import config_option
from corral.cli.errors import Problem
from corral.cli.manager.detach import print_summary
from corral.cli.manager.sd_notify import notifying
from corral.cli.options import data_directory
from corral.client import kubeconfig
from corral.client.kubeconfig import Kubeconfig, KubeconfigError
from corral.config import Layout, Settings

ADMINISTRATORS = "system:masters"
C = TypeVar("C", bound=Callable[..., Any])
HEALTH_PORT = 10257
"""kube-controller-manager's."""


def _election_options(command: C) -> C:
    """Add the options of the election and of health, named as kube-controller-manager's."""
    options = (
        click.option(
            "--leader-elect",
            type=bool,
            is_flag=False,
            flag_value=True,
            default=True,
            metavar="[=true|false]",
            show_default=True,
            help="Act only while this process holds the Lease; others take over when it ends.",
        ),
        click.option(
            "--leader-elect-resource-namespace",
            "lease_namespace",
            default="kube-system",
            metavar="NAMESPACE",
            show_default=True,
            help="Where the Lease is.",
        ),
        click.option(
            "--leader-elect-lease-duration",
            "lease",
            default="12s",
            metavar="DURATION",
            show_default=True,
            help="How long others wait for a leader that does not renew its Lease.",
        ),
        click.option(
            "--leader-elect-renew-deadline",
            "renew",
            default="8s",
            metavar="DURATION",
            show_default=True,
            help="How long a leader goes on that cannot renew its Lease.",
        ),
        click.option(
            "--leader-elect-retry-period",
            "retry",
            default="2s",
            metavar="DURATION",
            show_default=True,
            help="Time between two attempts to renew or to acquire the Lease.",
        ),
        click.option(
            "--bind",
            type=BindAddress(HEALTH_PORT),
            default=f"127.0.0.1:{HEALTH_PORT}",
            show_default=True,
            help="Where /healthz, /readyz and /metrics are served, over plain HTTP by default.",
        ),
        click.option("--verbose", is_flag=True, help="Log more."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    epilog="\b\nExample:\n  corral controllers --kubeconfig admin.conf\n"
    "  corral controllers --kubeconfig admin.conf --bind 0.0.0.0:10257",
)
@config_option
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The API server, and who this process is there.",
)
@click.option(
    "--cpu-allocation-ratio",
    type=click.IntRange(1),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many virtual processors share a real one, where a machine requests no cpu.",
)
@click.option(
    "--install-namespace",
    default="",
    metavar="NAMESPACE",
    help="Where corral install has put it: serve webhooks and the aggregated API at --bind, too, "
    "all over HTTPS.  [default: none]",
)
@_election_options
def controllers(path: Path, cpu_allocation_ratio: int, **chosen: Any) -> None:
    """Run corral's controllers alone, for the API server of a Kubernetes cluster.

    Start two: one leads, the other takes over when it ends. Nodes that run machines are those with
    the label kubevirt.io/schedulable=true; their taint corral.dev/machines is tolerated.
    """
    config = _read(path)
    with notifying() as notifier:

        def ready(summary: dict[str, str]) -> None:
            notifier.ready(summary["headline"])
            print_summary(summary)

        _run_own(config, cpu_allocation_ratio, chosen, ready)
    click.echo("The controllers have ended.")


def _run_own(
    config: Kubeconfig,
    cpu_ratio: int,
    chosen: dict[str, Any],
    announce: Callable[[dict[str, str]], None],
) -> None:
    from corral import controllers as own  # noqa: PLC0415  a second of imports
    from corral.api.kinds.core.machine_nodes import MACHINE_NODES  # noqa: PLC0415
    from corral.reconcile.context import ControllerContext  # noqa: PLC0415
    from corral.reconcile.controller import Controller  # noqa: PLC0415

    def make(context: ControllerContext) -> Sequence[Controller[Any]]:
        return own.controllers(context, cpu_ratio=cpu_ratio, placement=MACHINE_NODES)

    _run(config, make, own.SOURCES, chosen, announce)


@click.command(hidden=True, epilog="\b\nExample:\n  corral stand-ins --data-dir ~/lab")
@data_directory
@_election_options
def stand_ins(layout: Layout, **chosen: Any) -> None:
    """Run what Kubernetes brings, for a corral up --no-controllers: scheduler, collector, …."""
    from corral.daemon import address_ranges  # noqa: PLC0415
    from corral.daemon.component_users import STAND_IN  # noqa: PLC0415
    from corral.daemon.controllers import stand_ins as made  # noqa: PLC0415
    from corral.daemon.network import Networking  # noqa: PLC0415
    from corral.reconcile.context import ControllerContext  # noqa: PLC0415
    from corral.reconcile.controller import Controller  # noqa: PLC0415

    # Some objects of the embedded server may be written by this user alone.
    config = replace(
        _read(layout.kubeconfig), impersonated=STAND_IN.name, impersonated_group=ADMINISTRATORS
    )
    ranges = address_ranges.load(layout) or address_ranges.Ranges()
    settings = Settings(
        directory=layout.root, pod_cidrs=ranges.pods, service_cidrs=ranges.services, nodes=0
    )

    def make(context: ControllerContext) -> Sequence[Controller[Any]]:
        return made(settings, Networking(settings, None), config.server, context)

    _run(config, make, {}, chosen, print_summary)


def _read(path: Path) -> Kubeconfig:
    try:
        return kubeconfig.load(path)
    except KubeconfigError as error:
        raise Problem(str(error), "Name another with --kubeconfig.") from error


def _run(
    config: Kubeconfig,
    make: Any,
    sources: Any,
    chosen: dict[str, Any],
    announce: Callable[[dict[str, str]], None],
) -> None:
    from corral import logs  # noqa: PLC0415
    from corral.daemon.controllers_process import LEASE, ControllersProcess  # noqa: PLC0415
    from corral.daemon.errors import CannotStart  # noqa: PLC0415
    from corral.reconcile.leader_election import LeadershipLostError, Timing  # noqa: PLC0415

    logs.configure(None, verbose=chosen["verbose"])
    try:
        timing = Timing(*(parse_duration(chosen[each]) for each in ("lease", "renew", "retry")))
    except ValueError as error:
        raise Problem(f"leader election: {error}", "Write durations as 12s.") from error
    if not timing.lease > timing.renew > timing.retry > 0:
        raise Problem(
            "a Lease lasts longer than a leader tries to renew it, and that longer than an attempt",
            "--leader-elect-lease-duration, --leader-elect-renew-deadline and "
            "--leader-elect-retry-period must descend.",
        )
    lease = Key(chosen["lease_namespace"], LEASE) if chosen["leader_elect"] else None
    process = ControllersProcess(
        config=config,
        make=make,
        sources=sources,
        lease=lease,
        timing=timing,
        bind=chosen["bind"],
        install_namespace=chosen.get("install_namespace", ""),
    )
    try:
        asyncio.run(process.run(announce))
    except CannotStart as error:
        raise Problem(error.message, error.hint) from error
    except LeadershipLostError as lost:
        raise Problem(f"another process may lead now: {lost}", "Start this one again.") from lost
