"""Brings the roles and bindings of every cluster into its store, as Kubernetes does at each start.

What is missing is made; what has lost something gets it back, unless its annotation forbids that;
what somebody added to it stays.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from corral.api.errors import AlreadyExists, Conflict, NotFound, StoreReadError
from corral.api.kind import Kind
from corral.api.kinds.auth.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    aggregated,
)
from corral.api.object import Document, Key
from corral.client.client import Client
from corral.daemon.rbac import kubernetes, kubevirt
from corral.daemon.rbac.notation import AUTOUPDATE
from corral.server.authz.escalation import missing
from corral.server.authz.policy_rules import Rules, rules_of

ROLES = (*kubernetes.ROLES, *kubevirt.ROLES)
BINDINGS = (*kubernetes.BINDINGS, *kubevirt.BINDINGS)


class _Seen(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A role or a binding, word by word."""

    metadata: dict[str, Any]
    rules: list[Document] | None = None
    aggregation_rule: Document | None = None
    role_ref: Document | None = None
    subjects: list[Document] | None = None


async def reconcile_rbac(client: Client) -> None:
    """Make every role and binding be there, and be complete.

    Roles that are made of others have their rules at once: nobody waits for a loop to gather them.
    """
    present = await _present(client, CLUSTER_ROLE)
    wanted = {role["metadata"]["name"]: desired_role(role, present) for role in ROLES}
    whole = present | wanted
    for name in ("view", "edit", "admin"):  # each is part of the next
        if whole[name].get("aggregationRule"):
            whole[name] = wanted[name] = whole[name] | {
                "rules": aggregated(whole[name], whole.values())
            }
    await _write(client, CLUSTER_ROLE, wanted.values(), present)
    for role in kubernetes.ROLES_OF_NAMESPACES:
        there = await _present(client, ROLE, role["metadata"]["namespace"])
        await _write(client, ROLE, [desired_role(role, there)], there)
    for binding in kubernetes.BINDINGS_OF_NAMESPACES:
        there = await _present(client, ROLE_BINDING, binding["metadata"]["namespace"])
        await _write(client, ROLE_BINDING, [desired_binding(binding, there)], there)
    bound = await _present(client, CLUSTER_ROLE_BINDING)
    bindings = [desired_binding(each, bound) for each in BINDINGS]
    await _write(client, CLUSTER_ROLE_BINDING, bindings, bound)


def desired_role(wanted: Document, present: dict[str, Document]) -> Document:
    """What a role is to be: as it is there, with everything that it lacks."""
    found = present.get(wanted["metadata"]["name"])
    if found is None or _is_kept_by_others(found):
        return found or wanted
    rules = list(found.get("rules") or ())
    rules += missing(Rules(rules_of(found)), wanted.get("rules") or ())
    role = _labelled(found, wanted) | {"rules": rules}
    if selectors := (wanted.get("aggregationRule") or {}).get("clusterRoleSelectors"):
        known = (found.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        added = [each for each in selectors if each not in known]
        role["aggregationRule"] = {"clusterRoleSelectors": [*known, *added]}
    return role


def desired_binding(wanted: Document, present: dict[str, Document]) -> Document:
    """What a binding is to be; one to another role is no longer the same binding."""
    found = present.get(wanted["metadata"]["name"])
    if found is None or _is_kept_by_others(found):
        return found or wanted
    if found["roleRef"] != wanted["roleRef"]:
        return wanted
    known = found.get("subjects") or []
    added = [each for each in wanted["subjects"] if each not in known]
    return _labelled(found, wanted) | {"subjects": [*known, *added]}


def _is_kept_by_others(document: Document) -> bool:
    return (document["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false"


def _labelled(found: Document, wanted: Document) -> Document:
    """A document with the labels and annotations that it should have, its own going first."""
    metadata = dict(found["metadata"])
    for field in ("labels", "annotations"):
        metadata[field] = {**wanted["metadata"][field], **(metadata.get(field) or {})}
    return found | {"metadata": metadata}


async def _present(client: Client, kind: Kind, namespace: str = "") -> dict[str, Document]:
    items = (await client.list(_Seen, namespace, kind=kind)).items
    documents = [msgspec.to_builtins(item) for item in items]
    return {each["metadata"]["name"]: each for each in documents}


async def _write(
    client: Client,
    kind: Kind,
    wanted: Iterable[Document],
    present: dict[str, Document],
) -> None:
    """Write what differs, all at once: it is on disk together."""
    await asyncio.gather(
        *(
            _put(client, kind, each, present.get(each["metadata"]["name"]))
            for each in wanted
            if each != present.get(each["metadata"]["name"])
        )
    )


async def _put(client: Client, kind: Kind, wanted: Document, present: Document | None) -> None:
    key = Key(wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"])
    try:
        if present is not None and wanted.get("roleRef") == present.get("roleRef"):
            await client.replace(_Seen, wanted, kind=kind)
            return
        if present is not None:
            await client.delete(_Seen, key, kind=kind)
        await client.create(_Seen, wanted, kind=kind)
    except (AlreadyExists, Conflict, NotFound):
        return  # somebody was quicker; the next start looks again
    except StoreReadError:
        return  # it is told of; whoever lets it go has it at the next start
