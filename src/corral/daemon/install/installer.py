"""Applies the documents of an installation to a cluster, and removes them again."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from corral.api.errors import NotFound
from corral.api.kind import Kind
from corral.api.kinds import KINDS
from corral.api.kinds.cdi.kinds import DATA_VOLUME
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.crd.definition import DEFINITION, CustomResourceDefinition
from corral.api.kinds.crd.well_known import ESTABLISHED
from corral.api.kinds.kubevirt.kinds import POOL, VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.object import Document, Key, Struct
from corral.client.client import Client
from corral.daemon.install.options import OURS
from corral.reconcile.objects import Partial
from corral.reconcile.wait import wait_for

MANAGER: Final = "corral-install"
"""The field manager of server-side apply."""
WAIT_SECONDS: Final = 120.0
_OTHERS_MAY_HAVE: Final = (DEFINITION.name, "Namespace", "StorageClass")
_ADVICE: Final = {
    DEFINITION.name: ": KubeVirt or CDI is installed here",
    "Namespace": ": choose another with --namespace",
}
"""Advice for an error about an object of others, by kind."""

Report = Callable[[str], None]
"""Receives a line of progress."""


class _Metadata(Struct, kw_only=True):
    labels: dict[str, str] = {}


class _Labeled(Struct, kw_only=True):
    """An object of any kind, of which the labels are read."""

    metadata: _Metadata


class InstallError(Exception):
    """An installation that cannot go on; the message names the object."""


async def install(client: Client, documents: Sequence[Document], report: Report) -> None:
    """Apply documents by server-side apply.  Raises InstallError, and ApiError.

    What others have made is left alone: definitions of another KubeVirt, a Namespace for something
    else, a StorageClass of that name.
    """
    definitions = [each for each in documents if _is_definition(each)]
    for each in documents:
        if each["kind"] in _OTHERS_MAY_HAVE:
            await _require_ours(client, each)
    for each in documents:
        kind, key = _place(each)
        await client.apply(each, key, kind=kind, manager=MANAGER)
        report(f"{_name(each)} applied")
    for each in definitions:
        await _until_established(client, each)


async def uninstall(client: Client, documents: Sequence[Document], report: Report) -> None:
    """Remove what ``install`` applied, with all objects of our kinds.  Raises as that.

    Objects without our label stay: a namespace named by mistake may belong to others.
    Definitions go first, while controllers still release the finalizers of their objects.
    """
    definitions = [each for each in documents if _is_definition(each)]
    for each in definitions:
        await _require_ours(client, each)
    await _delete(client, definitions, report)
    for each in definitions:
        await _until_gone(client, each)
    others = [each for each in documents if not _is_definition(each)]
    await _delete(client, reversed(others), report)


async def lost_objects(client: Client) -> dict[str, int]:
    """Return how many objects would be lost with their kinds, by resource; none of those at zero.

    Stopped VirtualMachines, DataVolumes and checkpoints count: their disks go with them.
    """
    found = {}
    for kind in (VIRTUAL_MACHINE_INSTANCE, VIRTUAL_MACHINE, POOL, DATA_VOLUME, CHECKPOINT):
        with suppress(NotFound):
            if count := len((await client.list(Partial, kind=kind)).items):
                found[kind.plural] = count
    return found


def _is_definition(document: Document) -> bool:
    return bool(document["kind"] == DEFINITION.name)


def _place(document: Document) -> tuple[Kind, Key]:
    """Return the kind of a document, and its key."""
    kind = KINDS.by_kind(document["apiVersion"].rpartition("/")[0], document["kind"])
    assert kind is not None
    metadata = document["metadata"]
    return kind, Key(metadata.get("namespace", ""), metadata["name"])


def _name(document: Document) -> str:
    kind, key = _place(document)
    return f"{kind.resource}/{key.name}"


async def _require_ours(client: Client, document: Document) -> None:
    """Refuse to touch an object of others.  Raises InstallError."""
    if not await _is_ours(client, document, if_missing=True):
        name = f"the {document['kind']} {document['metadata']['name']} is not of corral install"
        raise InstallError(name + _ADVICE.get(document["kind"], ""))


async def _is_ours(client: Client, document: Document, *, if_missing: bool) -> bool:
    kind, key = _place(document)
    try:
        found = await client.get(_Labeled, key.name, key.namespace, kind=kind)
    except NotFound:
        return if_missing
    return OURS.items() <= found.metadata.labels.items()


async def _delete(client: Client, documents: Iterable[Document], report: Report) -> None:
    for each in documents:
        if not await _is_ours(client, each, if_missing=False):
            continue
        kind, key = _place(each)
        with suppress(NotFound):
            await client.delete(Partial, key, kind=kind)
        report(f"{_name(each)} deleted")


async def _until_established(client: Client, document: Document) -> None:
    _, key = _place(document)
    async with _deadline(f"the CustomResourceDefinition {key.name} is not Established"):
        await wait_for(client, CustomResourceDefinition, key, _is_established)


def _is_established(definition: CustomResourceDefinition) -> bool:
    conditions = (definition.status and definition.status.conditions) or ()
    return any(each.type == ESTABLISHED and each.status == "True" for each in conditions)


async def _until_gone(client: Client, document: Document) -> None:
    _, key = _place(document)
    problem = (
        f"the CustomResourceDefinition {key.name} is still there: its objects have finalizers that "
        "the controllers remove, which must run until then"
    )
    async with _deadline(problem):
        with suppress(NotFound):
            await wait_for(client, CustomResourceDefinition, key, lambda _: False)


@asynccontextmanager
async def _deadline(problem: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield
    except TimeoutError:
        raise InstallError(f"{problem} after {WAIT_SECONDS:.0f} s") from None
