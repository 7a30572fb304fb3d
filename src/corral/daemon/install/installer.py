"""Applies the documents of an installation to a cluster, and removes them again."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from corral.api.conditions import get_condition
from corral.api.errors import Gone, NotFound
from corral.api.kind import Kind, at
from corral.api.kinds import KINDS
from corral.api.kinds.crd.definition import DEFINITION
from corral.api.kinds.crd.well_known import ESTABLISHED
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.object import AnyFields, Document, Key, Struct
from corral.client.client import Client
from corral.client.decoding import WatchEvent
from corral.daemon.install.options import OURS
from corral.reconcile.objects import Partial

MANAGER: Final = "corral-install"
"""The field manager of server-side apply."""
WAIT_SECONDS: Final = 120.0

Report = Callable[[str], None]
"""Receives a line of progress."""


class InstallError(Exception):
    """An installation that cannot go on; the message names the object."""


class _Definition(Struct, kw_only=True):
    """The part of a CustomResourceDefinition that is read here."""

    metadata: AnyFields = {}
    status: AnyFields = {}


async def install(client: Client, documents: Sequence[Document], report: Report) -> None:
    """Apply documents by server-side apply.  Raises InstallError, and ApiError.

    Definitions that are not ours are left alone: another KubeVirt is installed.
    """
    definitions = [each for each in documents if _is_definition(each)]
    for each in definitions:
        await _require_ours(client, each)
    for each in documents:
        kind, key = _place(each)
        await client.apply(each, key, kind=kind, manager=MANAGER)
        report(f"{_name(each)} applied")
    for each in definitions:
        await _until_established(client, each)


async def uninstall(client: Client, documents: Sequence[Document], report: Report) -> None:
    """Remove what ``install`` applied, with all objects of our kinds.  Raises as that.

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


async def machines(client: Client) -> int:
    """Return the number of VMIs in the cluster."""
    try:
        return len((await client.list(Partial, kind=VIRTUAL_MACHINE_INSTANCE)).items)
    except NotFound:
        return 0


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
    """Refuse to touch a definition of others.  Raises InstallError."""
    name = document["metadata"]["name"]
    try:
        found = await client.get(_Definition, name, kind=DEFINITION)
    except NotFound:
        return
    if not OURS.items() <= (found.metadata.get("labels") or {}).items():
        raise InstallError(
            f"the CustomResourceDefinition {name} is not of corral install: KubeVirt or CDI is "
            "installed here"
        )


async def _delete(client: Client, documents: Iterable[Document], report: Report) -> None:
    for each in documents:
        kind, key = _place(each)
        try:
            await client.delete(Partial, key, kind=kind)
        except NotFound:
            continue
        report(f"{_name(each)} deleted")


async def _until_established(client: Client, document: Document) -> None:
    name = document["metadata"]["name"]

    def holds(found: _Definition | None) -> bool:
        condition = get_condition(at(found.status, "conditions") if found else None, ESTABLISHED)
        return condition is not None and condition.get("status") == "True"

    async with _deadline(f"the CustomResourceDefinition {name} is not Established"):
        await _until(client, name, holds)


async def _until_gone(client: Client, document: Document) -> None:
    name = document["metadata"]["name"]
    async with _deadline(
        f"the CustomResourceDefinition {name} is still there: its objects have finalizers that the "
        "controllers remove, which must run until then"
    ):
        await _until(client, name, lambda found: found is None)


async def _until(client: Client, name: str, holds: Callable[[_Definition | None], bool]) -> None:
    """Return when a definition, or its absence, satisfies a condition."""
    while True:
        async with aclosing(_versions(client, name)) as versions:
            async for found in versions:
                if holds(found):
                    return


async def _versions(client: Client, name: str) -> AsyncGenerator[_Definition | None, None]:
    """Yield a definition at first and after each change; None while there is none."""
    fields = f"metadata.name={name}"
    listed = await client.list(_Definition, fields=fields, kind=DEFINITION)
    yield listed.items[0] if listed.items else None
    try:
        async for event in client.watch(
            _Definition, fields=fields, kind=DEFINITION, resource_version=listed.resource_version
        ):
            if isinstance(event, WatchEvent):
                yield None if event.type == "DELETED" else event.object
    except Gone:
        return


@asynccontextmanager
async def _deadline(problem: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield
    except TimeoutError:
        raise InstallError(f"{problem} after {WAIT_SECONDS:.0f} s") from None
