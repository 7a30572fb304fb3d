"""``corral create instancetype`` and ``corral create preference``."""

from typing import Any

import click

from corral.api import yaml
from corral.api.kinds.kubevirt.instancetype import GROUP
from corral.api.kinds.kubevirt.instancetype_topology import TOPOLOGIES
from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.virtctl.create.names import random_name
from corral.cli.virtctl.create.parameters import fail, parameters, quantity


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral create instancetype --name small --cpu 1 --memory 128Mi |\n"
    "    kubectl create -f -",
)
@click.option("--name", default="", help="Name of the instance type.  [default: a random one]")
@click.option("--cpu", type=int, required=True, help="Processors that a guest gets.")
@click.option("--memory", required=True, help="Memory that a guest sees.")
@click.option("--iothreadspolicy", default="", help="auto or shared.")
@click.option("--namespaced", is_flag=True, help="Of one namespace instead of the cluster.")
@click.option(
    "--gpu", "gpus", multiple=True, metavar="name:N,devicename:D",
    help="A GPU that is passed through.",
)  # fmt: skip
@click.option(
    "--hostdevice", "host_devices", multiple=True, metavar="name:N,devicename:D",
    help="A device of the host that is passed through.",
)  # fmt: skip
def instancetype(*, name: str, namespaced: bool, **flags: Any) -> None:
    """Print the manifest of an instance type: processors and memory by name."""
    kind = "VirtualMachineInstancetype" if namespaced else "VirtualMachineClusterInstancetype"
    stem = "instancetype" if namespaced else "clusterinstancetype"
    _print(kind, name or random_name(stem), instancetype_spec(**flags))


def instancetype_spec(
    cpu: int,
    memory: str,
    iothreadspolicy: str,
    gpus: tuple[str, ...],
    host_devices: tuple[str, ...],
) -> Document:
    """Return the spec of an instance type from its flags.  Raises Problem."""
    if cpu <= 0:
        raise Problem("cpu value must be greater than zero")
    spec: Document = {"cpu": {"guest": cpu}, "memory": {"guest": quantity("memory", memory)}}
    if iothreadspolicy:
        if iothreadspolicy not in ("auto", "shared"):
            fail("iothreadspolicy", "IOThread must be of value auto or shared")
        spec["ioThreadsPolicy"] = iothreadspolicy
    for field, flag, texts in (("gpus", "gpu", gpus), ("hostDevices", "hostdevice", host_devices)):
        for text in texts:
            values = parameters(flag, text, "name devicename")
            device = {"name": values.require("name"), "deviceName": values.require("devicename")}
            spec.setdefault(field, []).append(device)
    return spec


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral create preference --name cores --cpu-topology cores |\n"
    "    kubectl create -f -",
)
@click.option("--name", default="", help="Name of the preference.  [default: a random one]")
@click.option("--namespaced", is_flag=True, help="Of one namespace instead of the cluster.")
@click.option("--volume-storage-class", default="", help="Storage class of disks.")
@click.option("--machine-type", default="", help="The board, for instance q35.")
@click.option("--cpu-topology", default="", help="sockets, cores, threads, spread or any.")
def preference(*, name: str, namespaced: bool, **flags: str) -> None:
    """Print the manifest of a preference: what machines get where they do not say."""
    kind = "VirtualMachinePreference" if namespaced else "VirtualMachineClusterPreference"
    stem = "preference" if namespaced else "clusterpreference"
    _print(kind, name or random_name(stem), preference_spec(**flags))


def preference_spec(volume_storage_class: str, machine_type: str, cpu_topology: str) -> Document:
    """Return the spec of a preference from its flags.  Raises Problem."""
    spec: Document = {}
    if volume_storage_class:
        spec["volumes"] = {"preferredStorageClassName": volume_storage_class}
    if machine_type:
        spec["machine"] = {"preferredMachineType": machine_type}
    if cpu_topology:
        if cpu_topology not in TOPOLOGIES:
            allowed = "sockets, cores, threads or spread"
            fail("cpu-topology", f"CPU topology must have a value of {allowed}")
        spec["cpu"] = {"preferredCPUTopology": cpu_topology}
    return spec


def _print(kind: str, name: str, spec: Document) -> None:
    head = {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": {"name": name}}
    click.echo(yaml.dump({**head, "spec": spec}), nl=False)
