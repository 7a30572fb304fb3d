"""What an autoscaler scales: the ``/scale`` of an object of any kind that has it."""

from typing import NamedTuple

from lightkube.models.autoscaling_v1 import Scale
from lightkube.models.autoscaling_v2 import CrossVersionObjectReference

from corral.api.errors import Conflict
from corral.api.kind import Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document, Key
from corral.client.client import Client

_TRIES = 4
"""How often a change is tried anew when something else of the object has changed meanwhile."""


class NoTarget(Exception):
    """Why an autoscaler's reference leads nowhere, in Kubernetes' words."""


class Target(NamedTuple):
    """Something that can be scaled, as it was a moment ago."""

    kind: Kind
    key: Key
    scale: Scale

    @property
    def replicas(self) -> int:
        """How many are wanted of it."""
        return (self.scale.spec and self.scale.spec.replicas) or 0

    @property
    def observed(self) -> int:
        """How many there are."""
        return (self.scale.status and self.scale.status.replicas) or 0

    @property
    def selector(self) -> str:
        """Which pods are its own."""
        return (self.scale.status and self.scale.status.selector) or ""


def kind_of_reference(kinds: KindTable, reference: CrossVersionObjectReference) -> Kind:
    """The kind that a reference names, whichever of its versions.  Raises NoTarget."""
    api_version = reference.apiVersion or ""
    if api_version.count("/") > 1:
        raise NoTarget(f"unexpected GroupVersion string: {api_version}")
    group = api_version.partition("/")[0] if "/" in api_version else ""
    kind = kinds.by_kind(group, reference.kind)
    if kind is None:
        raise NoTarget(f'no matches for kind "{reference.kind}" in group "{group}"')
    return kind


async def read(
    client: Client, kinds: KindTable, namespace: str, reference: CrossVersionObjectReference
) -> Target:
    """How many there are of what a reference names.  Raises NoTarget and ApiError."""
    kind = kind_of_reference(kinds, reference)
    if kind.scale is None:
        raise NoTarget("the server could not find the requested resource")
    return await _read(client, kind, Key(namespace, reference.name))


async def rescale(client: Client, target: Target, replicas: int) -> None:
    """Ask for so many, unless somebody asked for another number since the target was read.

    Raises ApiError; Conflict where the number was decided by what is true no more.
    """
    latest = target
    for _ in range(_TRIES):
        try:
            await _write(client, latest, replicas)
        except Conflict:
            latest = await _read(client, target.kind, target.key)
            if latest.replicas != target.replicas:
                raise
        else:
            return
    await _write(client, latest, replicas)


async def _read(client: Client, kind: Kind, key: Key) -> Target:
    scale = await client.get(Scale, key.name, key.namespace, kind=kind, subresource="scale")
    return Target(kind, key, scale)


async def _write(client: Client, target: Target, replicas: int) -> None:
    metadata = target.scale.metadata
    document: Document = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            **target.key._asdict(),
            "resourceVersion": metadata and metadata.resourceVersion,
        },
        "spec": {"replicas": replicas},
    }
    await client.replace(Scale, document, kind=target.kind, subresource="scale")
