"""Further users: client certificates, role bindings, and their revocation."""

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

LABELS: Final = {"app.kubernetes.io/managed-by": "corral-kubeconfig"}
"""Labels of bindings that this module creates; only these it deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGrant:
    """A grant to a user: a certificate for a lifetime, and optionally a role.

    namespace: of the kubeconfig, and of the role unless it applies everywhere.
    """

    user: str
    groups: tuple[str, ...] = ()
    role: str = ""
    namespace: str = ""
    everywhere: bool = False
    lifetime: timedelta

    def binding(self) -> Document:
        """Return the RoleBinding or ClusterRoleBinding of the role."""
        name = f"corral:{self.user}:{self.role}"
        namespace = {} if self.everywhere else {"namespace": self.namespace}
        return {
            "metadata": {"name": name, "labels": dict(LABELS), **namespace},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": self.role},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": self.user}],
        }


async def grant(layout: Layout, request: UserGrant) -> bytes:
    """Bind the role, issue the certificate, and return the kubeconfig.

    Raises Problem, without a certificate.
    """
    async with _administrator(layout) as (session, client):
        if request.role:
            await _require_role(client, request.role)
        if request.namespace:
            await _ensure(client, Namespace, {"metadata": {"name": request.namespace}})
        if request.role:
            view = ClusterRoleBinding if request.everywhere else RoleBinding
            await _ensure(client, view, request.binding())
    try:
        credentials = pki.credentials(layout.pki, request.user, request.groups, request.lifetime)
    except pki.PkiError as error:
        raise Problem(str(error)) from error
    return pki.kubeconfig_of(
        server=session.config.server,
        authority=session.config.authority.encode(),
        user=request.user,
        credentials=credentials,
        context="corral",
        namespace=request.namespace or "default",
    )


async def revoke(layout: Layout, user: str) -> str:
    """Revoke a user's certificates, delete the bindings of ``grant``, and return a message.

    The message lists bindings of other origin, which apply again with the next certificate.
    """
    async with _administrator(layout) as (_, client):
        now = time.time()
        await _put_revocation(client, user, rfc3339(now))
        deleted, remaining = list[str](), list[str]()
        for binding in await _bindings(client):
            if not _is_of(binding, user):
                continue
            if (binding.metadata.labels or {}).items() >= LABELS.items():
                deleted.append(await _delete(client, binding))
            else:
                remaining.append(f"{binding.metadata.name} ({_role_of(binding)})")
    # Certificates have times in whole seconds: wait, so that the next one is newer than this.
    await asyncio.sleep(int(now) + 1 - now)
    message = f"certificates of {user} are refused from now on"
    if deleted:
        message += f"; it has lost {', '.join(deleted)}"
    if remaining:
        message += f". Bindings that stay, for its next certificate: {', '.join(remaining)}"
    if not deleted and not remaining:
        message += (
            f". No role of {user} was found: is that its name? corral kubeconfig --list shows who "
            "has a role"
        )
    return message


async def list_grants(layout: Layout) -> str:
    """Return a line for each user and role that ``grant`` has bound."""
    async with _administrator(layout) as (_, client):
        found = sorted(
            (subject.name, _role_of(binding))
            for binding in await _bindings(client, _selector())
            for subject in binding.subjects or []
        )
    width = max((len(user) for user, _ in found), default=0)
    return "\n".join(f"{user:{width}}  {role}" for user, role in found)


async def _bindings(client: Client, labels: str = "") -> list[Any]:
    return [
        *(await client.list(RoleBinding, labels=labels)).items,
        *(await client.list(ClusterRoleBinding, labels=labels)).items,
    ]


@asynccontextmanager
async def _administrator(layout: Layout) -> AsyncIterator[tuple[Session, Client]]:
    """Open a session with the data directory's own kubeconfig, whatever $KUBECONFIG is."""
    session = session_of(layout, layout.kubeconfig)
    with session.api_errors():
        async with session.client() as client:
            yield session, client


async def _require_role(client: Client, role: str) -> None:
    try:
        await client.get(ClusterRole, role)
    except NotFound as error:
        raise Problem(
            f'there is no ClusterRole "{role}"', "kubectl get clusterroles lists them."
        ) from error


async def _ensure(client: Client, view: type[msgspec.Struct], document: Document) -> None:
    try:
        await client.create(view, document)
    except AlreadyExists:
        return


async def _put_revocation(client: Client, user: str, now: str) -> None:
    """Write a user's time of revocation into the ConfigMap; retries on conflicts."""
    while True:
        try:
            present: Any = await client.get(ConfigMap, MAP.name, MAP.namespace)
        except NotFound:
            present = None
        users = json.loads((present.data or {}).get(USERS) or "{}") if present else {}
        metadata: Document = {**MAP._asdict()}
        if present:
            metadata["resourceVersion"] = present.metadata.resourceVersion
        document = {"metadata": metadata, "data": {USERS: json.dumps(users | {user: now})}}
        try:
            if present:
                await client.replace(ConfigMap, document)
            else:
                await client.create(ConfigMap, document)
        except (AlreadyExists, Conflict):
            continue
        return


async def _delete(client: Client, binding: Any) -> str:
    """Delete a binding; return its role."""
    key = Key(binding.metadata.namespace or "", binding.metadata.name)
    with suppress(NotFound):
        await client.delete(type(binding), key)
    return _role_of(binding)


def _role_of(binding: Any) -> str:
    namespace = binding.metadata.namespace
    return f"{binding.roleRef.name} {f'in {namespace}' if namespace else 'everywhere'}"


def _is_of(binding: Any, user: str) -> bool:
    subjects = binding.subjects or []
    return [(each.kind, each.name) for each in subjects] == [("User", user)]


def _selector() -> str:
    return ",".join(f"{name}={value}" for name, value in LABELS.items())
