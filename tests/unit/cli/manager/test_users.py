"""Grants of further users, against a server in this process."""

from contextlib import asynccontextmanager

import pytest
from lightkube.models.core_v1 import Namespace
from lightkube.models.rbac_v1 import ClusterRoleBinding, RoleBinding

from corral.api.kinds.auth.rbac import GROUP
from corral.cli.manager import users
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store


@pytest.fixture
async def client(monkeypatch):
    store = Store.in_memory()
    client = Client(InProcess(ApiServer(store).handle, ADMINISTRATOR))

    @asynccontextmanager
    async def administrator(_layout):
        yield None, client

    monkeypatch.setattr(users, "_administrator", administrator)
    for name in ("kube-system", "lab"):
        await client.create(Namespace, {"metadata": {"name": name}})
    yield client
    await store.close()


def binding(user, role, **metadata):
    return {
        "metadata": {"name": f"{user}-{role}", **metadata},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }


async def test_grants_are_listed_and_revoked_and_other_bindings_reported(client):
    made = {"labels": dict(users.LABELS)}
    await client.create(RoleBinding, binding("ann", "edit", namespace="lab", **made))
    await client.create(RoleBinding, binding("ann", "scaler", namespace="lab"))
    await client.create(ClusterRoleBinding, binding("benny", "view", **made))
    assert await users.list_grants(None) == "ann    edit in lab\nbenny  view everywhere"
    assert await users.revoke(None, "ann") == (
        "certificates of ann are refused from now on; it has lost edit in lab. "
        "Bindings that stay, for its next certificate: ann-scaler (scaler in lab)"
    )
    assert await users.list_grants(None) == "benny  view everywhere"


async def test_revoking_an_unknown_user_is_reported(client):
    assert "No role of nobodyhere was found: is that its name?" in await users.revoke(
        None, "nobodyhere"
    )
