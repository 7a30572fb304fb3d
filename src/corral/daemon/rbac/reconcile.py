"""Reconciles the bootstrap roles and bindings at each start, as kube-apiserver does.

Missing ones are created; removed rules and subjects are added again unless the annotation
``autoupdate`` is false; additions of users stay.
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
from corral.daemon.rbac import kubernetes, kubevirt, own_kinds
from corral.daemon.rbac.notation import AUTOUPDATE
from corral.server.authz.escalation import missing
from corral.server.authz.policy_rules import Rules, rules_of

ROLES = (*kubernetes.ROLES, *kubevirt.ROLES, *own_kinds.ROLES)
BINDINGS = (*kubernetes.BINDINGS, *kubevirt.BINDINGS)


class _Document(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A role or a binding with its fields as stored."""

    metadata: dict[str, Any]
    rules: list[Document] | None = None
    aggregation_rule: Document | None = None
    role_ref: Document | None = None
    subjects: list[Document] | None = None


async def reconcile_rbac(client: Client) -> None:
    """Create and complete every bootstrap role and binding.

    Aggregated roles get their rules here already, so that they hold before the controller of
    aggregation has run.
    """
    present = await _present(client, CLUSTER_ROLE)
    desired = {role["metadata"]["name"]: desired_role(role, present) for role in ROLES}
    whole = present | desired
    for name in ("view", "edit", "admin"):  # each is part of the next
        if whole[name].get("aggregationRule"):
            whole[name] = desired[name] = whole[name] | {
                "rules": aggregated(whole[name], whole.values())
            }
    await _write(client, CLUSTER_ROLE, desired.values(), present)
    for role in kubernetes.ROLES_OF_NAMESPACES:
        there = await _present(client, ROLE, role["metadata"]["namespace"])
        await _write(client, ROLE, [desired_role(role, there)], there)
    for binding in kubernetes.BINDINGS_OF_NAMESPACES:
        there = await _present(client, ROLE_BINDING, binding["metadata"]["namespace"])
        await _write(client, ROLE_BINDING, [desired_binding(binding, there)], there)
    bound = await _present(client, CLUSTER_ROLE_BINDING)
    bindings = [desired_binding(each, bound) for each in BINDINGS]
    await _write(client, CLUSTER_ROLE_BINDING, bindings, bound)


def desired_role(bootstrap: Document, present: dict[str, Document]) -> Document:
    """Return the stored role with the rules, labels and annotations that it lacks."""
    found = present.get(bootstrap["metadata"]["name"])
    if found is None or _is_unmanaged(found):
        return found or bootstrap
    rules = list(found.get("rules") or ())
    rules += missing(Rules(rules_of(found)), bootstrap.get("rules") or ())
    role = _labelled(found, bootstrap) | {"rules": rules}
    if selectors := (bootstrap.get("aggregationRule") or {}).get("clusterRoleSelectors"):
        present_selectors = (found.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        added = [each for each in selectors if each not in present_selectors]
        role["aggregationRule"] = {"clusterRoleSelectors": [*present_selectors, *added]}
    return role


def desired_binding(bootstrap: Document, present: dict[str, Document]) -> Document:
    """Return the stored binding with the subjects that it lacks; a new one if its role differs."""
    found = present.get(bootstrap["metadata"]["name"])
    if found is None or _is_unmanaged(found):
        return found or bootstrap
    if found["roleRef"] != bootstrap["roleRef"]:
        return bootstrap
    present_subjects = found.get("subjects") or []
    added = [each for each in bootstrap["subjects"] if each not in present_subjects]
    return _labelled(found, bootstrap) | {"subjects": [*present_subjects, *added]}


def _is_unmanaged(document: Document) -> bool:
    return (document["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false"


def _labelled(found: Document, bootstrap: Document) -> Document:
    """Return the stored document with the labels and annotations that it lacks."""
    metadata = dict(found["metadata"])
    for field in ("labels", "annotations"):
        metadata[field] = {**bootstrap["metadata"][field], **(metadata.get(field) or {})}
    return found | {"metadata": metadata}


async def _present(client: Client, kind: Kind, namespace: str = "") -> dict[str, Document]:
    items = (await client.list(_Document, namespace, kind=kind)).items
    documents = [msgspec.to_builtins(item) for item in items]
    return {each["metadata"]["name"]: each for each in documents}


async def _write(
    client: Client,
    kind: Kind,
    desired: Iterable[Document],
    present: dict[str, Document],
) -> None:
    """Write the documents that differ, at once: they share a commit."""
    await asyncio.gather(
        *(
            _put(client, kind, each, present.get(each["metadata"]["name"]))
            for each in desired
            if each != present.get(each["metadata"]["name"])
        )
    )


async def _put(client: Client, kind: Kind, bootstrap: Document, present: Document | None) -> None:
    key = Key(bootstrap["metadata"].get("namespace", ""), bootstrap["metadata"]["name"])
    try:
        if present is not None and bootstrap.get("roleRef") == present.get("roleRef"):
            await client.replace(_Document, bootstrap, kind=kind)
            return
        if present is not None:
            await client.delete(_Document, key, kind=kind)
        await client.create(_Document, bootstrap, kind=kind)
    except (AlreadyExists, Conflict, NotFound):
        return  # another client was faster; the next start reconciles again
    except StoreReadError:
        return  # damaged on disk, which is reported; once deleted, the next start creates it
