"""Further users: the certificate by which one is known, the role that one has, and their end."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec
from lightkube.models.core_v1 import ConfigMap, Namespace
from lightkube.models.rbac_v1 import ClusterRole, ClusterRoleBinding, RoleBinding

from corral import pki
from corral.api.errors import AlreadyExists, Conflict, NotFound
from corral.api.kinds.auth.rbac import GROUP
from corral.api.object import Document, Key
from corral.api.revocation import MAP, USERS
from corral.api.time import rfc3339
from corral.cli.errors import Problem
from corral.cli.session import Session, session_of
from corral.client.client import Client
from corral.config import Layout

MADE_HERE: Final = {"app.kubernetes.io/managed-by": "corral-kubeconfig"}
"""Labels of bindings that were made here, and may be taken away again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user is to have: a certificate for a time, and maybe a role, somewhere or everywhere.

    ``namespace`` is where the user is at home; the role counts there unless it does everywhere.
    """

    user: str
    groups: tuple[str, ...] = ()
    role: str = ""
    namespace: str = ""
    everywhere: bool = False
    lifetime: timedelta

    def binding(self) -> Document:
        """The binding that gives the role."""
        name = f"corral:{self.user}:{self.role}"
        namespace = {} if self.everywhere else {"namespace": self.namespace}
        return {
            "metadata": {"name": name, "labels": dict(MADE_HERE), **namespace},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": self.role},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": self.user}],
        }


async def grant(layout: Layout, wish: Wish) -> bytes:
    """Give what is wished for; the kubeconfig.  Raises Problem, and then gives no certificate."""
    async with _administrator(layout) as (session, client):
        if wish.role:
            await _require_role(client, wish.role)
        if wish.namespace:
            await _make(client, Namespace, {"metadata": {"name": wish.namespace}})
        if wish.role:
            await _make(
                client, ClusterRoleBinding if wish.everywhere else RoleBinding, wish.binding()
            )
    try:
        known = pki.credentials(layout.pki, wish.user, wish.groups, wish.lifetime)
    except pki.PkiError as error:
        raise Problem(str(error)) from error
    return pki.kubeconfig_of(
        server=session.config.server,
        authority=session.config.authority.encode(),
        user=wish.user,
        credentials=known,
        context="corral",
        namespace=wish.namespace or "default",
    )


async def revoke(layout: Layout, user: str) -> str:
    """Refuse all certificates that a user has by now, and take the roles that were given here.

    What others gave stays, and is told: it counts again with the next certificate.
    """
    async with _administrator(layout) as (_, client):
        now = time.time()
        await _put_revocation(client, user, rfc3339(now))
        taken, stays = list[str](), list[str]()
        for binding in await _bindings(client):
            if not _is_of(binding, user):
                continue
            if (binding.metadata.labels or {}).items() >= MADE_HERE.items():
                taken.append(await _take(client, binding))
            else:
                stays.append(f"{binding.metadata.name} ({_given(binding)})")
    # a certificate tells its time in whole seconds: one that is made after this is a newer one
    await asyncio.sleep(int(now) + 1 - now)
    told = f"certificates of {user} are refused from now on"
    if taken:
        told += f"; it has lost {', '.join(taken)}"
    if stays:
        told += f". Bindings that stay, for its next certificate: {', '.join(stays)}"
    if not taken and not stays:
        told += (
            f". No role of {user} was found: is that its name? corral kubeconfig --list tells who "
            "has a role"
        )
    return told


async def listed(layout: Layout) -> str:
    """Who was given what here, a line for each."""
    async with _administrator(layout) as (_, client):
        found = sorted(
            (subject.name, _given(binding))
            for binding in await _bindings(client, _selector())
            for subject in binding.subjects or []
        )
    width = max((len(user) for user, _ in found), default=0)
    return "\n".join(f"{user:{width}}  {given}" for user, given in found)


async def _bindings(client: Client, labels: str = "") -> list[Any]:
    return [
        *(await client.list(RoleBinding, labels=labels)).items,
        *(await client.list(ClusterRoleBinding, labels=labels)).items,
    ]


@asynccontextmanager
async def _administrator(layout: Layout) -> AsyncIterator[tuple[Session, Client]]:
    """The cluster of a data directory, whatever KUBECONFIG names."""
    session = session_of(layout, layout.kubeconfig)
    with session.told():
        async with session.client() as client:
            yield session, client


async def _require_role(client: Client, role: str) -> None:
    try:
        await client.get(ClusterRole, role)
    except NotFound as error:
        raise Problem(
            f'there is no ClusterRole "{role}"', "kubectl get clusterroles lists them."
        ) from error


async def _make(client: Client, view: type[msgspec.Struct], document: Document) -> None:
    try:
        await client.create(view, document)
    except AlreadyExists:
        return


async def _put_revocation(client: Client, user: str, now: str) -> None:
    """Write who is refused; what others write meanwhile is kept."""
    while True:
        try:
            present: Any = await client.get(ConfigMap, MAP.name, MAP.namespace)
        except NotFound:
            present = None
        known = json.loads((present.data or {}).get(USERS) or "{}") if present else {}
        metadata: Document = {**MAP._asdict()}
        if present:
            metadata["resourceVersion"] = present.metadata.resourceVersion
        document = {"metadata": metadata, "data": {USERS: json.dumps(known | {user: now})}}
        try:
            if present:
                await client.replace(ConfigMap, document)
            else:
                await client.create(ConfigMap, document)
        except (AlreadyExists, Conflict):
            continue
        return


async def _take(client: Client, binding: Any) -> str:
    """Delete a binding; what it gave."""
    key = Key(binding.metadata.namespace or "", binding.metadata.name)
    with suppress(NotFound):  # somebody else took it
        await client.delete(type(binding), key)
    return _given(binding)


def _given(binding: Any) -> str:
    namespace = binding.metadata.namespace
    return f"{binding.roleRef.name} {f'in {namespace}' if namespace else 'everywhere'}"


def _is_of(binding: Any, user: str) -> bool:
    subjects = binding.subjects or []
    return [(each.kind, each.name) for each in subjects] == [("User", user)]


def _selector() -> str:
    return ",".join(f"{name}={value}" for name, value in MADE_HERE.items())
