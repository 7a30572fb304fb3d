"""Endpoints: who answers for a service, in the old form; EndpointSlice is the newer one."""

from collections.abc import Iterator

from lightkube.models.core_v1 import Endpoints

from corral.api.kind import Column, Kind, Version
from corral.api.kinds.columns import age, few
from corral.api.object import Document

NONE = "<none>"


def _ready(document: Document) -> Iterator[str]:
    """Every address that is ready, with each port that it is ready on."""
    for subset in document.get("subsets") or ():
        addresses = [one.get("ip", "") for one in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:  # a headless service need not have any
            yield from addresses
        for port in ports or ():
            for address in addresses:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{port['port']}"


def _shown(document: Document) -> str:
    return few(list(_ready(document))) if document.get("subsets") else NONE


def default(document: Document) -> None:
    """Ports are those of TCP where nobody says otherwise."""
    for subset in document.get("subsets") or ():
        for port in subset.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"


ENDPOINTS = Kind(
    group="",
    name="Endpoints",
    plural="endpoints",
    singular="endpoints",
    short=("ep",),
    versions=(Version(name="v1"),),
    view=Endpoints,
    status=False,
    native=True,
    columns=(
        Column(name="Endpoints", cell=_shown, description="addresses and ports that are ready"),
        age(),
    ),
    default=default,
)
