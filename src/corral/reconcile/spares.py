"""Spares of warm pools: which are ready, and how one gets its new owner.

A spare is a VMI that its warm pool controls.  It has the labels of its pool and none of its
template, so that no Service, set, budget or autoscaler of the target selects it.  Handing it out is
one write, which gives it the labels of the template and another controller; the resourceVersion in
it lets exactly one of several writers succeed.  Name, uid, address and guest stay.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from corral.api.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from corral.api.kinds.corral.checkpoint import READY, VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_annotations
from corral.api.kinds.corral.warm_pool import (
    FROM_WARM_POOL,
    SPARE_LABELS,
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.replicaset import (
    ReplicaSetTemplate,
    VirtualMachineInstanceReplicaSet,
)
from corral.api.kinds.vmi.fork_state import has_own_identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key, Object
from corral.client.client import Client
from corral.metrics import Family, counter
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid, is_being_deleted, owner_reference
from corral.reconcile.ownership import owners_without, patch_preconditions, require_not_deleted
from corral.reconcile.replicas import is_active, is_ready

VMI = VirtualMachineInstance
WarmPool = VirtualMachineWarmPool
ReplicaSet = VirtualMachineInstanceReplicaSet

log = structlog.get_logger()

HASH_DIGITS: Final = 10
_ATTEMPTS: Final = 5
"""Writes of one spare: its node reports its status meanwhile, which makes some of them conflict."""


def template_hash(template: ReplicaSetTemplate) -> str:
    """Return the hash of what a spare is made from: all of its template but the labels.

    Those are read from the template when the spare is handed out, so that a change of them costs no
    machine.
    """
    metadata = msgspec.to_builtins(template.metadata)
    metadata.pop("labels", None)
    made_from = {"metadata": metadata, "spec": template.spec}
    encoded = msgspec.json.encode(made_from, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:HASH_DIGITS]


def is_ready_spare(vmi: VMI, pool_uid: str, digest: str) -> bool:
    """Report whether a VMI is a spare of a pool that may be handed out."""
    return (
        is_active(vmi)
        and is_ready(vmi)
        and vmi.status.phase == "Running"
        and controller_uid(vmi) == pool_uid
        and WARM_POOL_LABEL in vmi.metadata.labels
        and vmi.metadata.labels.get(TEMPLATE_HASH_LABEL) == digest
        and has_own_identity(vmi)
    )


def handed_out(
    spare: VMI, owner: Object, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Document:
    """Return the merge patch that hands a spare to ``owner``; it conflicts with any other write."""
    pool_name = spare.metadata.labels[WARM_POOL_LABEL]
    others = owners_without(spare, controller_uid(spare))
    return {
        "metadata": {
            **patch_preconditions(spare),
            "labels": {**dict.fromkeys(SPARE_LABELS), **labels},
            "annotations": {**annotations, FROM_WARM_POOL: pool_name},
            "ownerReferences": [*others, owner_reference(owner)],
        }
    }


class HandOut(NamedTuple):
    """The spares that were handed out, and why one was refused; another may have been given."""

    given: list[VMI]
    refused: ApiError | None = None


class Spares:
    """Warm pools and their spares, from the caches, for the controllers that use them.

    Of each pool, and of each kind of owner, ``misses`` counts machines that were requested while no
    spare was ready.
    """

    def __init__(self, context: ControllerContext) -> None:
        self.pools = context.informers.of(WarmPool)
        self.sets = context.informers.of(ReplicaSet)
        self.vmis = context.informers.of(VMI)
        self.checkpoints = context.informers.of(VirtualMachineCheckpoint)
        self.misses: Counter[tuple[Key, str]] = Counter()
        self._client = context.client
        self.pools.index(_target_index)
        self.vmis.index(_owner_index)

    def pools_of(self, replica_set: ReplicaSet) -> Sequence[WarmPool]:
        """Return the warm pools whose spares are for a set."""
        return self.pools.indexed(_target_index, str(replica_set.key))

    def template(self, pool: WarmPool) -> ReplicaSetTemplate | None:
        """Return the template of a pool's spares; None if its target does not exist."""
        target = self.target(pool)
        return pool.spec.template if target is None else target.spec.template

    def target(self, pool: WarmPool) -> ReplicaSet | None:
        """Return the set that a pool's spares are for; None if there is none."""
        reference = pool.spec.target_ref
        if reference is None:
            return None
        target = self.sets.get(Key(pool.metadata.namespace, reference.name))
        return None if target is None or is_being_deleted(target) else target

    def fork_annotations(self, replica_set: ReplicaSet) -> Mapping[str, str]:
        """Return the annotations by which a member starts from a checkpoint of a warm pool.

        They are empty where there is none of the present template.
        """
        digest = ""
        for pool in self.pools_of(replica_set):
            checkpoint = self.checkpoints.get(Key(pool.metadata.namespace, pool.status.checkpoint))
            if checkpoint is None or is_being_deleted(checkpoint) or not checkpoint.has(READY):
                continue
            digest = digest or template_hash(replica_set.spec.template)
            if checkpoint.metadata.labels.get(TEMPLATE_HASH_LABEL) == digest:
                return fork_annotations(checkpoint)
        return {}

    def owned(self, pool: WarmPool) -> list[VMI]:
        """Return the VMIs that a pool controls."""
        return self.vmis.indexed(_owner_index, pool.metadata.uid)

    def ready(self, pool: WarmPool) -> list[VMI]:
        """Return the spares of a pool that may be handed out, the oldest first."""
        template = self.template(pool)
        if template is None or is_being_deleted(pool):
            return []
        uid, digest = pool.metadata.uid, template_hash(template)
        ready = [vmi for vmi in self.owned(pool) if is_ready_spare(vmi, uid, digest)]
        return sorted(ready, key=lambda vmi: (vmi.metadata.creation_timestamp or "", vmi.key.name))

    async def hand_out(
        self,
        pool: WarmPool,
        owner: Object,
        labels: Mapping[str, str],
        *,
        count: int = 1,
        annotations: Mapping[str, str] | None = None,
    ) -> HandOut:
        """Hand at most ``count`` ready spares to ``owner``, which gets as many as there are.

        Spares get ``labels`` beside those that users set.  Return them as patched.  For one owner
        one call at a time: what it got by an earlier one, whose response was lost, is returned too.
        Raises ApiError: Conflict if the owner is being deleted.
        """
        candidates = self.ready(pool)
        given: list[VMI] = []
        refused: list[ApiError] = []
        if count and candidates:
            await require_not_deleted(self._client, owner)

        async def give(spare: VMI) -> None:
            try:
                patched = await _hand_out(self._client, spare, owner, labels, annotations or {})
            except (BadRequest, Forbidden, Invalid) as error:  # a webhook's refusal
                log.warning("spare not handed out", vmi=str(spare.key), error=str(error))
                refused.append(error)
            else:
                given.extend(() if patched is None else (patched,))

        while candidates and len(given) < count:
            missing = count - len(given)
            batch, candidates = candidates[:missing], candidates[missing:]
            if errors := await for_each(batch, give):
                raise errors[0]
        self.misses[pool.key, owner.kind] += count - len(given)
        return HandOut(given, refused[0] if refused else None)

    def families(self) -> Iterable[Family]:
        """Return the metrics of those that request machines; none where there are no pools."""
        misses = counter(
            "corral_warm_pool_misses_total",
            "Machines requested while no spare was ready, by kind of who requests them.",
        )
        for address in [each for each in self.misses if self.pools.get(each[0]) is None]:
            del self.misses[address]
        for (key, kind), count in self.misses.items():
            misses.add(count, {**pool_labels(key), "kind": kind})
        return (misses,) if self.misses else ()


def pool_labels(key: Key) -> Mapping[str, str]:
    """Return the labels of a warm pool's metrics."""
    return {"namespace": key.namespace, "name": key.name}


async def _hand_out(
    client: Client,
    spare: VMI,
    owner: Object,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> VMI | None:
    """Hand out one spare; return it as patched, None if another was faster or it ended.

    Raises ApiError.
    """
    pool_uid, digest = controller_uid(spare), spare.metadata.labels[TEMPLATE_HASH_LABEL]
    for _ in range(_ATTEMPTS):
        try:
            return await client.patch(VMI, spare.key, handed_out(spare, owner, labels, annotations))
        except Conflict:
            latest = await _get(client, spare.key)
        except NotFound:
            return None
        if latest is not None and controller_uid(latest) == owner.metadata.uid:
            return latest  # an earlier write succeeded, but its response was lost
        if latest is None or not is_ready_spare(latest, pool_uid, digest):
            break
        spare = latest
    return None


async def _get(client: Client, key: Key) -> VMI | None:
    try:
        return await client.get(VMI, key.name, key.namespace)
    except NotFound:
        return None


def _target_index(pool: WarmPool) -> Sequence[str]:
    reference = pool.spec.target_ref
    return () if reference is None else (str(Key(pool.metadata.namespace, reference.name)),)


def _owner_index(vmi: VMI) -> Sequence[str]:
    """Return the uid of the warm pool that controls a VMI."""
    owners = vmi.metadata.owner_references
    return tuple(owner.uid for owner in owners if owner.controller and owner.kind == WarmPool.kind)
