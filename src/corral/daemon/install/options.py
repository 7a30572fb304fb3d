"""Options of an installation on a Kubernetes."""

from dataclasses import dataclass
from typing import Final

from corral import __version__
from corral.api.kinds.crd.builtin import MANAGED_BY
from corral.api.object import Document
from corral.controllers import serving_certificate

NAMESPACE: Final = "corral-system"
IMAGE: Final = f"corral:{__version__}"
CONTROLLERS: Final = serving_certificate.NAME
"""Name of the Deployment of the controllers, of its Service and of its ServiceAccount."""
NODE: Final = "corral-node"
"""Name of the DaemonSet of nodes, and of its ServiceAccount."""
SYSTEM: Final = "kube-system"
OURS: Final = {MANAGED_BY: "corral", "app.kubernetes.io/part-of": "corral"}
"""Labels of everything that an installation consists of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of ``corral install``, as its user gave them.

    namespace: where the processes run.
    image: the image that both of them run; it holds corral and QEMU.
    """

    namespace: str = NAMESPACE
    image: str = IMAGE


def document(
    api_version: str, kind: str, name: str, namespace: str = "", **rest: object
) -> Document:
    """Return a document of the installation, with its labels."""
    metadata: Document = {"name": name, "labels": dict(OURS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def labeled(document: Document) -> Document:
    """Return a document with the labels of the installation beside its own."""
    metadata = document["metadata"]
    labels = {**(metadata.get("labels") or {}), **OURS}
    return {**document, "metadata": {**metadata, "labels": labels}}
