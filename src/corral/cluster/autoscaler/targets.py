"""Scale subresource of an autoscaler's target, of any kind that has one."""

from typing import NamedTuple

from lightkube.models.autoscaling_v1 import Scale
from lightkube.models.autoscaling_v2 import CrossVersionObjectReference

from corral.api.errors import Conflict
from corral.api.kind import Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document, Key
from corral.client.client import Client

_TRIES = 4
"""Retries of a write that conflicts with a change of other fields."""


class TargetNotFound(Exception):
    """The reference of an autoscaler cannot be resolved; the message is Kubernetes'."""


class Target(NamedTuple):
    """The scale subresource of an object, as it was read."""

    kind: Kind
    key: Key
    scale: Scale

    @property
    def replicas(self) -> int:
        """Return the desired replicas."""
        return (self.scale.spec and self.scale.spec.replicas) or 0

    @property
    def observed(self) -> int:
        """Return the replicas in the status."""
        return (self.scale.status and self.scale.status.replicas) or 0

    @property
    def selector(self) -> str:
        """Return the selector of its pods."""
        return (self.scale.status and self.scale.status.selector) or ""


def kind_of_reference(kinds: KindTable, reference: CrossVersionObjectReference) -> Kind:
    """Return the kind that a reference names, in any version. Raises NoTarget."""
    api_version = reference.apiVersion or ""
    if api_version.count("/") > 1:
        raise TargetNotFound(f"unexpected GroupVersion string: {api_version}")
    group = api_version.partition("/")[0] if "/" in api_version else ""
    kind = kinds.by_kind(group, reference.kind)
    if kind is None:
        raise TargetNotFound(f'no matches for kind "{reference.kind}" in group "{group}"')
    return kind


async def read(
    client: Client, kinds: KindTable, namespace: str, reference: CrossVersionObjectReference
) -> Target:
    """Read the scale of what a reference names. Raises NoTarget and ApiError."""
    kind = kind_of_reference(kinds, reference)
    if kind.scale is None:
        raise TargetNotFound("the server could not find the requested resource")
    return await _read(client, kind, Key(namespace, reference.name))


async def rescale(client: Client, target: Target, replicas: int) -> None:
    """Write the desired replicas, unless they were changed since the target was read.

    Raises ApiError; Conflict if the replicas were changed meanwhile.
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
