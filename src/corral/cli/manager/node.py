"""``corral node``: run the node agent alone, as a node of a Kubernetes cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from corral.api.addresses import Network
from corral.api.kinds.core.machine_nodes import TAINT
from corral.cli.address_options import Address, Ranges, format_ranges
from corral.cli.errors import Problem
from corral.cli.manager.join import NodeKind, node_options, start
from corral.client import kubeconfig
from corral.client.kubeconfig import KubeconfigError
from corral.config import BACKENDS, SERVICE_CIDRS, VXLAN, Layout

_FILE = click.Path(dir_okay=False, path_type=Path)


def _refuse_shared_storage(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> None:
    """Raise Problem: a Kubernetes lets no node read whether another node's machine is over."""
    if value is not None:
        raise Problem(
            "corral node has no shared directory: on a Kubernetes no node may read the pods of "
            "another, so none knows when the disk of a lost host may be used again",
            "Leave --shared-storage out: claims of corral's classes lie on their node. A corral up "
            "with hosts that join it (corral join) has shared directories.",
        )


@click.command(
    epilog="\b\nExample:\n"
    "  corral node --bootstrap-kubeconfig admin.conf --detach\n"
    "  corral node --bootstrap-kubeconfig boot.conf --name rack1 --port 10260"
)
@click.option(
    "--kubeconfig",
    "given",
    type=_FILE,
    metavar="FILE",
    help="The API server, and the credentials of this node, whose user is system:node:NAME.",
)
@click.option(
    "--bootstrap-kubeconfig",
    "bootstrap",
    type=_FILE,
    metavar="FILE",
    help="The API server, and a user who may request this node's certificates; it renews them.",
)
@click.option(
    "--provisioner-kubeconfig",
    "provisioner",
    type=_FILE,
    metavar="FILE",
    help="A user who writes claims and volumes: Kubernetes' admission lets no "
    "node write claims.  [default: this node]",
)
@click.option(
    "--client-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CA certificates of clients that the node accepts.  [default: the API server's, where the "
    "node may read them, else the kubeconfig's]",
)
@click.option(
    "--pod-cidr",
    type=Ranges(),
    default=None,
    help="spec.podCIDRs of a new Node: the addresses of its machines.  [default: those that "
    "kube-controller-manager allocates]",
)
@click.option(
    "--cluster-cidr",
    type=Ranges(),
    default=None,
    help="The addresses of all pods.  [default: those of this node alone]",
)
@click.option(
    "--service-cidr",
    type=Ranges(),
    default=format_ranges(SERVICE_CIDRS[:1]),
    show_default=True,
    help="The addresses of the cluster's Services.",
)
@click.option(
    "--cluster-dns",
    type=Address(),
    default=None,
    help="The cluster's name server.  [default: one of this node, at the tenth Service address]",
)
@click.option(
    "--network-backend",
    type=click.Choice(BACKENDS),
    default=VXLAN,
    show_default=True,
    help="How machines of different nodes reach each other; wireguard encrypts, none leaves routes "
    "to you, cni the network of machines to the cluster's CNI plugins.",
)
@click.option("--shared-storage", expose_value=False, hidden=True, callback=_refuse_shared_storage)
@node_options
def node(layout: Layout, given: Path | None, bootstrap: Path | None, **chosen: Any) -> None:
    """Run machines on this host as a node of a Kubernetes cluster.

    The Node is created with the taint corral.dev/machines:NoSchedule, which only machines tolerate.
    """
    path = bootstrap or given
    if path is None or (bootstrap and given):
        raise Problem("name one of --kubeconfig and --bootstrap-kubeconfig")
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen["taints"] = (TAINT, *chosen["taints"])
    start(layout, chosen, _kind(path, chosen, bootstraps=bootstrap is not None))


def _kind(path: Path, chosen: dict[str, Any], *, bootstraps: bool) -> NodeKind:
    from corral.daemon.kubernetes_node import KubernetesNode  # noqa: PLC0415

    provisioner: Path | None = chosen["provisioner"]
    try:
        config = kubeconfig.load(path)
        provisioning = kubeconfig.load(provisioner) if provisioner else None
    except KubeconfigError as error:
        raise Problem(str(error)) from error
    file: Path | None = chosen["client_ca_file"]
    made = KubernetesNode(
        config=config,
        bootstraps=bootstraps,
        clients=file.read_text() if file else "",
        cluster_cidrs=_text(chosen["cluster_cidr"]),
        pod_cidrs=[str(each) for each in chosen["pod_cidr"] or ()],
        service_cidrs=_text(chosen["service_cidr"]),
        backend=chosen["network_backend"],
        labels=dict(chosen["labels"]),
        taints=chosen["taints"],
    )
    dns = chosen["cluster_dns"]
    return NodeKind(
        server=config.server,
        enter=made.enter,
        settings=lambda settings: replace(settings, cluster_dns=dns),
        process=lambda process: replace(
            process,
            config=made.reached(process.settings.layout),
            credentials=made.credentials(process.settings.layout, process.membership.name),
            provisioner=provisioning,
        ),
    )


def _text(ranges: tuple[Network, ...] | None) -> str:
    return ",".join(map(str, ranges or ()))
