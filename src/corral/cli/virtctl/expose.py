"""``corral expose``: creates a Service for a VMI, a VM or a replica set."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import click
import msgspec

from corral.api.errors import ApiError
from corral.api.kind import at
from corral.api.kinds.vmi.derived import INSTANCE_ID, instance_id
from corral.api.object import Document
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session


class _Kind(NamedTuple):
    name: str
    plural: str


_VMI: Final = _Kind("VirtualMachineInstance", "virtualmachineinstances")
_VM: Final = _Kind("VirtualMachine", "virtualmachines")
_REPLICA_SET: Final = _Kind("VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets")
_KINDS: Final = {
    alias: kind
    for short, kind in (("vmi", _VMI), ("vm", _VM), ("vmirs", _REPLICA_SET))
    for alias in (short, f"{short}s", kind.plural.removesuffix("s"), kind.plural)
}

_PROTOCOLS: Final = ("TCP", "UDP")
_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_FAMILIES: Final = ("IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4")
_POLICIES: Final = ("SingleStack", "PreferDualStack", "RequireDualStack")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The flags of a Service; an empty text or port 0 means unset."""

    name: str
    port: int = 0
    target_port: str = ""
    port_name: str = ""
    protocol: str = "TCP"
    type: str = "ClusterIP"
    cluster_ip: str = ""
    external_ip: str = ""
    load_balancer_ip: str = ""
    node_port: int = 0
    ip_family: str = ""
    ip_family_policy: str = ""


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral expose vmirs testreplicaset --name web --port 80\n"
    "  corral expose vmi testvdk4x --name ssh --port 27017 --target-port 22 \\\n"
    "    --type NodePort",
)
@click.argument("type_", metavar="TYPE")
@click.argument("name")
@click.option("--name", "service", required=True, help="Name of the Service that is made.")
@click.option(
    "--port", type=int, default=0,
    help="Port of the Service.  [default: all that the machine declares]",
)  # fmt: skip
@click.option("--target-port", default="", help="Number or name of the machine's port.")
@click.option("--port-name", default="", help="Name of the port.")
@click.option("--protocol", default="TCP", show_default=True, help="TCP or UDP.")
@click.option(
    "--type", default="ClusterIP", show_default=True, help="ClusterIP, NodePort or LoadBalancer."
)
@click.option("--node-port", type=int, default=0, help="Port on the node, of those for NodePort.")
@click.option("--cluster-ip", default="", help="Address of the Service; None makes it headless.")
@click.option("--external-ip", default="", help="One more address that leads to the Service.")
@click.option("--load-balancer-ip", default="", help="Address that a LoadBalancer listens on.")
@click.option("--ip-family", default="", help="IPv4, IPv6, or both, the first one first.")
@click.option(
    "--ip-family-policy", default="", help="SingleStack, PreferDualStack or RequireDualStack."
)
@options.session
def expose(*, session: Session, type_: str, name: str, service: str, **flags: Any) -> None:
    """Make a Service in front of a machine or a replica set.

    TYPE is vmi, vm or vmirs.  The Service is deleted with the object that it was made for.
    """
    request = _normalize(ServiceOptions(name=service, **flags))
    kind = _KINDS.get(type_.lower())
    if kind is None:
        raise Problem(f"unsupported resource type: {type_.lower()}", "Write vmi, vm or vmirs.")
    with session.api_errors():
        asyncio.run(_expose(session, kind, name, request))
    click.echo(f"Service {service} successfully created for {type_.lower()} {name}")


async def _expose(session: Session, kind: _Kind, name: str, request: ServiceOptions) -> None:
    space = f"namespaces/{quote(session.namespace, safe='')}"
    path = f"/apis/kubevirt.io/v1/{space}/{kind.plural}/{quote(name, safe='')}"
    async with session.client() as client:
        with session.api_errors(f"error fetching {kind.name}"):
            owner = msgspec.json.decode(await client.request("GET", path), type=Document)
        document = service_for(owner, kind.name, request)
        try:
            await client.request("POST", f"/api/v1/{space}/services", document=document)
        except ApiError as error:
            raise Problem(f"service creation failed: {error}") from error


def service_for(owner: Document, kind: str, request: ServiceOptions) -> Document:
    """Return the Service of an object, with virtctl's selector, ports and owner.

    Raises Problem with virtctl's messages.
    """
    metadata = owner["metadata"]
    spec: Document = {
        "type": request.type,
        "selector": _selector(owner, kind),
        "ports": _ports(owner, kind, request),
        "clusterIP": request.cluster_ip,
        "externalIPs": [request.external_ip] if request.external_ip else [],
        "loadBalancerIP": request.load_balancer_ip,
        "ipFamilies": request.ip_family.split(",") if request.ip_family else [],
        "ipFamilyPolicy": request.ip_family_policy,
    }
    reference = {
        "apiVersion": "kubevirt.io/v1", "kind": kind, "name": metadata["name"],
        "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": False,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": request.name, "ownerReferences": [reference]},
        "spec": {field: value for field, value in spec.items() if value},
    }


def _selector(owner: Document, kind: str) -> Mapping[str, str]:
    if kind != _REPLICA_SET.name:
        return {INSTANCE_ID: instance_id(owner["metadata"]["name"])}
    selector = at(owner, "spec", "selector") or {}
    labels: dict[str, str] = selector.get("matchLabels") or {}
    if not labels:
        raise Problem(f"cannot expose {kind} without any selector labels")
    if selector.get("matchExpressions"):
        raise Problem(
            f"cannot expose {kind} with match expressions",
            "A Service selects by labels alone: write one with kubectl.",
        )
    return labels


def _ports(owner: Document, kind: str, request: ServiceOptions) -> Sequence[Document]:
    if request.port:
        port = {
            "name": request.port_name, "protocol": request.protocol, "port": request.port,
            "targetPort": int(request.target_port) if request.target_port.isdecimal()
            else request.target_port,
            "nodePort": request.node_port,
        }  # fmt: skip
        return [{field: value for field, value in port.items() if value}]
    template = () if kind == _VMI.name else ("spec", "template")
    declared = _declared(at(owner, *template, "spec") or {})
    if not declared:
        raise Problem(
            "couldn't find port via --port flag or introspection", "Name the port with --port."
        )
    return [
        {
            "name": f"port-{number}",
            "port": each.get("port"),
            **({"protocol": each["protocol"]} if each.get("protocol") else {}),
        }
        for number, each in enumerate(declared, 1)
    ]


def _declared(spec: Document) -> Sequence[Document]:
    """Return the ports of the interface in the pod network."""
    network = next(
        (each.get("name") for each in spec.get("networks") or () if each.get("pod") is not None),
        None,
    )
    for interface in at(spec, "domain", "devices", "interfaces") or ():
        if network is not None and interface.get("name") == network:
            return interface.get("ports") or ()
    return ()


def _normalize(request: ServiceOptions) -> ServiceOptions:
    """Normalize the options to the API's spelling.  Raises Problem with virtctl's messages."""
    if request.type.lower() == "externalname":
        raise Problem(f"type: {request.type} not supported")
    families = _one_of(_FAMILIES, request.ip_family, "unknown IPFamily/s")
    policy = _one_of(_POLICIES, request.ip_family_policy, "unknown IPFamilyPolicy/s")
    return replace(
        request,
        protocol=_one_of(_PROTOCOLS, request.protocol, "unknown protocol"),
        type=_one_of(_TYPES, request.type, "unknown service type"),
        ip_family=families,
        ip_family_policy=policy or ("PreferDualStack" if "," in families else ""),
    )


def _one_of(values: Sequence[str], text: str, error: str) -> str:
    for each in ("", *values):
        if text.lower() == each.lower():
            return each
    raise Problem(f"{error}: {text}", f"Supported are {', '.join(values)}.")
