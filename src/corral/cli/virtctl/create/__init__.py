"""``corral create``: prints manifests from flags; sends nothing to the server."""

import click

from corral.cli import help_lists
from corral.cli.virtctl.create.instancetypes import instancetype, preference
from corral.cli.virtctl.create.vm import vm


@click.group(
    cls=help_lists.Group,
    epilog="\b\nExample:\n  corral create vm --name web --memory 128Mi | kubectl create -f -",
)
def create() -> None:
    """Print the manifest of a VirtualMachine, an instance type or a preference.

    Pipe it into kubectl create -f -.
    """


create.add_command(vm)
create.add_command(instancetype)
create.add_command(preference)
