"""Machines for programs: ``async with claim("spares") as machine: await machine.run(["uname"])``.

A claim of a warm pool is created, and deleted with its machine at the end of the block.  The user
needs the rights to create, get, watch and delete VirtualMachineClaims; for ``Machine.run`` also
``create`` of ``pods/exec``.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.corral.claim import (
    AGENT_CONNECTED,
    BOUND,
    EXPIRED,
    FAILURES,
    MACHINE_DELETED,
    MACHINE_ENDED,
    NOT_FOUND,
    READY,
    VirtualMachineClaim,
)
from corral.api.kinds.vmi.user_data import NOT_FOUND as NO_USER_DATA
from corral.api.object import Document, Key
from corral.client import commands
from corral.client.client import Client
from corral.client.commands import CommandResult
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig, load
from corral.client.next_version import next_version
from corral.config import Layout, default_directory

Claim = VirtualMachineClaim

_DELETE_SECONDS: Final = 30.0
PENDING_TIMEOUT: Final = "1h"
"""How long a claim waits for a machine, if its user does not say."""
AGENT_SECONDS: Final = 300.0
"""How long a command waits for the guest agent: a guest may still boot when it is handed out."""


class ClaimError(Exception):
    """A claim that gets no machine, or whose machine cannot be used."""


class WarmPoolMissing(ClaimError):
    """A claim of a warm pool that does not exist."""


class CommandError(Exception):
    """A command that has ended with another exit code than 0; ``result`` has its outputs."""

    def __init__(self, command: Sequence[str], result: CommandResult) -> None:
        output = result.errors.decode(errors="replace").strip()
        text = f"{command[0]} has ended with exit code {result.exit_code}"
        super().__init__(f"{text}: {output}" if output else text)
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A claim to create.

    pool: the warm pool.
    name: of the claim; generated from the pool's by default.
    ttl, pending_timeout: durations such as 10m; without limit if empty.
    user_data: a script for the guest.
    user_data_secret: a Secret with the script, in its place.
    """

    pool: str
    name: str = ""
    ttl: str = ""
    pending_timeout: str = ""
    user_data: str = ""
    user_data_secret: str = ""

    def document(self) -> Document:
        """Return the claim."""
        metadata = {"name": self.name} if self.name else {"generateName": f"{self.pool}-"}
        data: Document = {}
        if self.user_data:
            data["inline"] = self.user_data
        if self.user_data_secret:
            data["secretRef"] = {"name": self.user_data_secret}
        values = {"ttl": self.ttl, "pendingTimeout": self.pending_timeout, "userData": data}
        optional = {name: value for name, value in values.items() if value}
        return {"metadata": metadata, "spec": {"warmPoolRef": {"name": self.pool}, **optional}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that a claim is bound to.

    claim: the claim's name.
    name: the VirtualMachineInstance.
    addresses: its addresses, where pods are reached.
    ssh: a command that logs in to it.
    """

    claim: str
    name: str
    namespace: str
    addresses: Sequence[str]
    ssh: str
    pod: str
    config: Kubeconfig
    client: Client

    async def run(
        self, command: Sequence[str], *, typed: bytes = b"", check: bool = True
    ) -> CommandResult:
        """Run a command in the guest, by its guest agent, and return its outputs.

        ``typed`` is its input.  A guest that boots is waited for, until its agent is connected.
        Raises CommandError for an exit code other than 0, unless ``check`` is False; ClaimError if
        the machine is gone or no agent connects; ApiError if the command cannot be run.
        """
        await self._agent()
        pod = Key(self.namespace, self.pod)
        result = await commands.run(self.config, pod, command, typed)
        if check and result.exit_code:
            raise CommandError(command, result)
        return result

    async def _agent(self) -> None:
        """Wait until the guest agent is connected.  Raises ClaimError, ApiError."""
        try:
            async with asyncio.timeout(AGENT_SECONDS):
                current = await self.client.get(Claim, self.claim, self.namespace)
                while not has_agent(current):
                    current = await next_version(self.client, current)
        except NotFound as error:
            raise ClaimError(f"claim {self.claim} has been deleted") from error
        except TimeoutError as error:
            why = f"its guest agent is not connected within {AGENT_SECONDS:.0f} s"
            raise ClaimError(f"claim {self.claim}: {why}: does the image run one?") from error


@asynccontextmanager
async def claim(
    pool: str,
    *,
    ttl: str = "1h",
    pending_timeout: str = PENDING_TIMEOUT,
    user_data: str = "",
    user_data_secret: str = "",
    namespace: str = "",
    kubeconfig: Path | None = None,
    context: str = "",
) -> AsyncIterator[Machine]:
    """Claim a machine of a warm pool for a block, at whose end it is thrown away.

    ``ttl``, and ``pending_timeout`` before that, end it even if this program cannot.  The cluster
    is that of ``kubeconfig``, else of $KUBECONFIG, else of this host's corral.  Raises ClaimError
    if there is no such pool, no machine within ``pending_timeout``, or the machine fails; ApiError;
    KubeconfigError.
    """
    variable = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = kubeconfig or (Path(variable) if variable else Layout(default_directory()).kubeconfig)
    config = load(path, context)
    request = Request(
        pool=pool,
        ttl=ttl,
        pending_timeout=pending_timeout,
        user_data=user_data,
        user_data_secret=user_data_secret,
    )
    async with Https(config) as transport:
        client = Client(transport)
        created = await client.create(Claim, request.document(), namespace or config.namespace)
        try:
            yield machine_of(await ready(client, created), config, client)
        finally:
            await asyncio.shield(_give_back(client, created))


def _ignored(_message: str) -> None:
    return


async def ready(client: Client, created: Claim, report: Callable[[str], None] = _ignored) -> Claim:
    """Wait until the machine of a claim can be used; return the claim then.

    ``report`` is called with each reason to wait.  Raises ClaimError if it never will, ApiError.
    """
    current, reported = created, ""
    try:
        while not is_usable(current):
            if (why := _wait_reason(current)) != reported:
                report(why)
                reported = why
            current = await next_version(client, current)
    except NotFound as error:
        raise ClaimError(f"claim {created.metadata.name} has been deleted") from error
    return current


def machine_of(bound: Claim, config: Kubeconfig, client: Client) -> Machine:
    """Return the machine of a claim that is bound."""
    status = bound.status
    assert status.vmi is not None
    return Machine(
        claim=bound.metadata.name,
        name=status.vmi.name,
        namespace=bound.metadata.namespace,
        addresses=tuple(status.addresses),
        ssh=status.ssh,
        pod=status.vmi.pod_name,
        config=config,
        client=client,
    )


def is_usable(current: Claim) -> bool:
    """Report whether the machine of a claim can be used.  Raises ClaimError if it never will."""
    conditions = {each.type: each for each in current.status.conditions}
    if (expired := conditions.get(EXPIRED)) is not None and expired.status == "True":
        raise ClaimError(f"claim {current.metadata.name} has expired: {expired.message}")
    machine = conditions.get(READY)
    if machine is not None and machine.reason in (*FAILURES, NO_USER_DATA):
        raise ClaimError(f"claim {current.metadata.name}: {machine.message}")
    bound = conditions.get(BOUND)
    if bound is not None and bound.reason == NOT_FOUND:
        raise WarmPoolMissing(bound.message)
    return machine is not None and machine.status == "True"


def _wait_reason(current: Claim) -> str:
    """Return why a claim, or its machine, is not ready; empty if nothing says so."""
    conditions = {each.type: each for each in current.status.conditions}
    bound = conditions.get(BOUND)
    shown = conditions.get(READY) if bound is not None and bound.status == "True" else bound
    return shown.message if shown is not None else ""


def has_agent(current: Claim) -> bool:
    """Report whether the guest agent is connected.  Raises ClaimError if it never will be."""
    conditions = {each.type: each for each in current.status.conditions}
    machine = conditions.get(READY)
    if machine is not None and machine.reason in (MACHINE_DELETED, MACHINE_ENDED, EXPIRED):
        raise ClaimError(f"claim {current.metadata.name}: {machine.message}")
    agent = conditions.get(AGENT_CONNECTED)
    return agent is not None and agent.status == "True"


async def deleted(client: Client, key: Key, uid: str) -> None:
    """Delete a claim, and wait until its machine and then the claim are gone.  Raises ApiError."""
    with suppress(NotFound):
        await client.delete(Claim, key, uid=uid, propagation="Foreground")
        current = await client.get(Claim, key.name, key.namespace)
        while current.metadata.uid == uid:
            current = await next_version(client, current)


async def _give_back(client: Client, created: Claim) -> None:
    """Delete a claim; its ttl ends it if the server cannot be reached."""
    with suppress(ApiError, TimeoutError):
        async with asyncio.timeout(_DELETE_SECONDS):
            await client.delete(Claim, created.key, uid=created.metadata.uid)
