"""``corral kubeconfig``."""

import click

from corral.cli.options import data_directory
from corral.cli.problem import Problem
from corral.config import Layout


@click.command(epilog="\b\nExample:\n  export KUBECONFIG=$(corral kubeconfig)")
@data_directory
def kubeconfig(layout: Layout) -> None:
    """Print the path of the kubeconfig that lets kubectl in."""
    if not layout.kubeconfig.exists():
        raise Problem(
            f"there is no {layout.kubeconfig} yet",
            "Start corral first: corral up --detach (with the same --data-dir).",
        )
    click.echo(layout.kubeconfig)
