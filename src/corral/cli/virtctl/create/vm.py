"""``corral create vm``: prints the manifest of a VirtualMachine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from corral.api import yaml
from corral.api.instancetypes.matchers import INSTANCETYPE, PREFERENCE, Matcher
from corral.api.kinds.kubevirt.virtualmachine import RUN_STRATEGIES
from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.virtctl.create.first_boot import FirstBoot
from corral.cli.virtctl.create.names import random_name
from corral.cli.virtctl.create.parameters import fail, prefixed, quantity
from corral.cli.virtctl.create.volumes import (
    Disks,
    add_claims,
    add_container_disks,
    add_imports,
    add_sysprep,
)

DEFAULT_MEMORY: Final = "512Mi"
GRACE_SECONDS: Final = 180


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral create vm --name web --memory 128Mi \\\n"
    "    --volume-containerdisk src:kubevirt/cirros-container-disk-demo |\n"
    "    kubectl create -f -\n"
    "  corral create vm --instancetype small --volume-import type:blank,size:1Gi",
)
@click.option("--name", default="", help="Name of the VirtualMachine.  [default: a random one]")
@click.option(
    "--run-strategy", default="Always", show_default=True, help=f"{', '.join(RUN_STRATEGIES)}."
)
@click.option(
    "--termination-grace-period", type=int, default=GRACE_SECONDS, show_default=True,
    help="Seconds that the guest has to shut down.",
)  # fmt: skip
@click.option("--memory", default="", help=f"Memory of the guest.  [default: {DEFAULT_MEMORY}]")
@click.option("--instancetype", default="", help="Instance type, as NAME or KIND/NAME.")
@click.option("--infer-instancetype", is_flag=True, help="Infer it from the boot volume.")
@click.option("--infer-instancetype-from", default="", help="Infer it from this volume.")
@click.option("--preference", default="", help="Preference, as NAME or KIND/NAME.")
@click.option("--infer-preference", is_flag=True, help="Infer it from the boot volume.")
@click.option("--infer-preference-from", default="", help="Infer it from this volume.")
@click.option(
    "--volume-containerdisk", "container_disks", multiple=True, metavar="src:IMAGE,…",
    help="A disk of a container image; name, bootorder.",
)  # fmt: skip
@click.option(
    "--volume-pvc", "claims", multiple=True, metavar="src:CLAIM,…",
    help="A claim that is there; name, bootorder.",
)  # fmt: skip
@click.option(
    "--volume-import", "imports", multiple=True, metavar="type:TYPE,…",
    help="A disk that is made: blank, http, registry, pvc or ds; size, name, url, src, bootorder.",
)  # fmt: skip
@click.option(
    "--volume-sysprep", "sysprep", default="", metavar="src:NAME,…",
    help="An answer file for Windows; type: configMap or secret.",
)  # fmt: skip
@click.option("--cloud-init", default="noCloud", help="noCloud, configDrive or none.")
@click.option("--user", default="", help="Main user of the guest.")
@click.option(
    "--password-file", type=click.Path(path_type=Path, dir_okay=False),
    help="File with the main user's password.",
)  # fmt: skip
@click.option("--ssh-key", multiple=True, help="Public key of the main user.")
@click.option("--ga-manage-ssh/--no-ga-manage-ssh", default=None, help="Let the agent write keys.")
@click.option(
    "--access-cred", multiple=True, metavar="src:SECRET,…",
    help="Keys or a password out of a Secret; type, method, user.",
)  # fmt: skip
@click.option("--cloud-init-user-data", default="", help="User data, base64.")
@click.option("--cloud-init-network-data", default="", help="Network data, base64.")
def vm(*, name: str, run_strategy: str, termination_grace_period: int, **flags: Any) -> None:
    """Print the manifest of a VirtualMachine.

    Without bootorder it starts from its first volume: container disks come before claims, and these
    before imported volumes.
    """
    if run_strategy not in RUN_STRATEGIES:
        supported = ", ".join(RUN_STRATEGIES)
        error = f'invalid RunStrategy "{run_strategy}", supported values are: {supported}'
        fail("run-strategy", error)
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name or random_name("vm")},
        "spec": {"runStrategy": run_strategy},
    }
    complete(document, grace_seconds=termination_grace_period, **flags)
    click.echo(yaml.dump(document), nl=False)


def complete(
    document: Document,
    *,
    grace_seconds: int,
    memory: str,
    container_disks: Sequence[str],
    claims: Sequence[str],
    imports: Sequence[str],
    sysprep: str,
    **flags: Any,
) -> None:
    """Add the VMI template and all it refers to.  Raises Problem."""
    disks = Disks(document["metadata"]["name"])
    add_container_disks(disks, container_disks)
    add_claims(disks, claims)
    add_imports(disks, imports)
    for matcher in (INSTANCETYPE, PREFERENCE):
        reference = _reference(
            matcher,
            disks,
            named=flags.pop(matcher.field),
            infer=flags.pop(f"infer_{matcher.field}"),
            source=flags.pop(f"infer_{matcher.field}_from"),
            implied=matcher is PREFERENCE or not memory,
        )
        if reference is not None:
            document["spec"][matcher.field] = reference
    if sysprep:
        add_sysprep(disks, sysprep)
    first_boot = FirstBoot(**flags)
    first_boot.add_volume(disks)
    if disks.templates:
        document["spec"]["dataVolumeTemplates"] = disks.templates
    domain: Document = {"devices": {"disks": disks.disks} if disks.disks else {}}
    _memory(domain, document["spec"].get("instancetype"), memory)
    document["spec"]["template"] = {
        "spec": {
            "domain": domain,
            "terminationGracePeriodSeconds": grace_seconds,
            **({"volumes": disks.volumes} if disks.volumes else {}),
            **first_boot.access(),
        }
    }


def _memory(domain: Document, instancetype: Document | None, memory: str) -> None:
    """Set the guest's memory, unless its instance type certainly does."""
    has_instancetype = (
        instancetype is not None and "inferFromVolumeFailurePolicy" not in instancetype
    )
    if memory and has_instancetype:
        raise Problem("--memory cannot be used together with an instance type")
    if not has_instancetype:
        domain["memory"] = {"guest": quantity("memory", memory or DEFAULT_MEMORY)}


def _reference(
    matcher: Matcher,
    disks: Disks,
    *,
    named: str,
    infer: bool,
    source: str,
    implied: bool,
) -> Document | None:
    """Return ``spec.instancetype`` or ``spec.preference``: by name or inferred from a volume."""
    if sum(map(bool, (named, infer, source))) > 1:
        flags = f"--{matcher.field}, --infer-{matcher.field} and --infer-{matcher.field}-from"
        raise Problem(f"only one of {flags} can be used")
    if named:
        return _named(matcher, named)
    flag = f"infer-{matcher.field}{'-from' if source else ''}"
    if source:
        volume = next((one for one in disks.volumes if one["name"] == source), None)
        if volume is None:
            fail(flag, f"there is no volume with name '{source}'")
    else:
        volume = disks.boot_volume
    if not infer and not source:
        if not implied or volume is None or not _can_infer_from(volume):
            return None
        return {"inferFromVolume": volume["name"], "inferFromVolumeFailurePolicy": "Ignore"}
    if volume is None:
        fail(flag, "at least one volume is needed to infer an instance type or preference")
    if not _can_infer_from(volume):
        kinds = "datasources, datavolumes or pvcs"
        fail(flag, f"inference of instancetype or preference works only with {kinds}")
    return {"inferFromVolume": volume["name"]}


def _can_infer_from(volume: Document) -> bool:
    """Report whether an instance type can be inferred from a volume: it has a claim."""
    return bool(volume.keys() & {"persistentVolumeClaim", "dataVolume"})


def _named(matcher: Matcher, text: str) -> Document:
    kind, name = prefixed(matcher.field, text)
    kinds = (matcher.namespaced_kind.singular, matcher.cluster_kind.singular)
    if kind and kind.lower() not in kinds:
        supported = ", ".join(kinds)
        error = f'invalid {matcher.field} kind "{kind}", supported values are: {supported}'
        fail(matcher.field, error)
    return {"name": name, **({"kind": kind} if kind else {})}
