"""Spares of warm pools: which are ready, and how one gets its new owner.

A spare is a VMI that its warm pool controls.  It has the labels of its pool and none of its
template, so that no Service, set, budget or autoscaler of the target selects it.  Handing it out is
one write, which gives it the labels of the template and another controller; the resourceVersion in
it lets exactly one of several writers succeed.  Name, uid, address and guest stay; a guest that was
paused goes on, which its node sees to.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from corral.api.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from corral.api.kinds.corral.checkpoint import READY, VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_annotations
from corral.api.kinds.corral.spare_state import SPARE_STATE, is_paused_spare
from corral.api.kinds.corral.warm_pool import (
    FROM_WARM_POOL,
    SPARE_LABELS,
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt, live_updates
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import (
    ReplicaSetTemplate,
    VirtualMachineInstanceReplicaSet,
)
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.fork_state import has_own_identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key, Object
from corral.client.client import Client
from corral.metrics import Family, counter
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informer
from corral.reconcile.objects import (
    controller_of,
    controller_uid,
    is_being_deleted,
    owner_reference,
)
from corral.reconcile.ownership import owners_without, patch_preconditions, require_not_deleted
from corral.reconcile.pool_target import is_made_from, member_template, obstacle
from corral.reconcile.replicas import is_active, is_ready

VMI = VirtualMachineInstance
WarmPool = VirtualMachineWarmPool
ReplicaSet = VirtualMachineInstanceReplicaSet
Target = ReplicaSet | VirtualMachinePool

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
        and (is_ready(vmi) or is_paused_spare(vmi))
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
            "annotations": {SPARE_STATE: None, **annotations, FROM_WARM_POOL: pool_name},
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
        self.vm_pools = context.informers.of(VirtualMachinePool)
        self.installations = context.informers.of(KubeVirt)
        self.vmis = context.informers.of(VMI)
        self.checkpoints = context.informers.of(VirtualMachineCheckpoint)
        self.misses: Counter[tuple[Key, str]] = Counter()
        self._client = context.client
        self.pools.index(_target_index)
        self.vmis.index(_owner_index)

    @property
    def member_sources(self) -> Sequence[Informer[Any]]:
        """The caches that ``fork_annotations_of_member`` reads."""
        return self.pools, self.vm_pools, self.checkpoints, self.installations

    def pools_of(self, target: Target) -> Sequence[WarmPool]:
        """Return the warm pools of a set, or of a pool of VirtualMachines."""
        return self.pools.indexed(_target_index, _target_key(target.kind, target.key))

    def template(self, pool: WarmPool) -> ReplicaSetTemplate | None:
        """Return the template of a pool's spares; None if its target does not exist."""
        target = self.target(pool)
        if isinstance(target, VirtualMachinePool):
            return self._member_template(target)
        return pool.spec.template if target is None else target.spec.template

    def target(self, pool: WarmPool) -> Target | None:
        """Return what a pool's spares, or its checkpoint, are for; None if there is none."""
        reference = pool.spec.target_ref
        if reference is None:
            return None
        key = Key(pool.metadata.namespace, reference.name)
        of_vms = reference.kind == VirtualMachinePool.kind
        target: Target | None = self.vm_pools.get(key) if of_vms else self.sets.get(key)
        return None if target is None or is_being_deleted(target) else target

    def obstacle(self, pool: WarmPool) -> str:
        """Return why the target's members cannot start from a checkpoint; empty if they may."""
        target = self.target(pool)
        return obstacle(target) if isinstance(target, VirtualMachinePool) else ""

    def fork_annotations(self, replica_set: ReplicaSet) -> Mapping[str, str]:
        """Return the annotations by which a member starts from a checkpoint of a warm pool.

        They are empty where there is none of the present template.
        """
        ready = self._ready_checkpoints(replica_set)
        return _annotations(ready, replica_set.spec.template) if ready else {}

    def fork_annotations_of_member(self, vm: VirtualMachine) -> Mapping[str, str]:
        """Return the annotations by which the VMI of a VirtualMachine starts from a checkpoint.

        They are empty where the VirtualMachine belongs to no pool that has one, or differs from the
        pool's present template.
        """
        owner = controller_of(vm)
        if owner is None or owner.kind != VirtualMachinePool.kind:
            return {}
        pool = self.vm_pools.get(Key(vm.metadata.namespace, owner.name))
        if pool is None or pool.metadata.uid != owner.uid:
            return {}
        ready = self._ready_checkpoints(pool)
        if not ready or obstacle(pool) or not is_made_from(vm, pool):
            return {}
        return _annotations(ready, self._member_template(pool))

    def _member_template(self, pool: VirtualMachinePool) -> ReplicaSetTemplate:
        return member_template(pool, live_updates(self.installations.get(KEY)))

    def _ready_checkpoints(self, target: Target) -> list[VirtualMachineCheckpoint]:
        """Return the checkpoints of a target's warm pools from which VMIs can start."""
        pools = self.pools_of(target)
        keys = (Key(pool.metadata.namespace, pool.status.checkpoint) for pool in pools)
        found = (self.checkpoints.get(key) for key in keys)
        return [one for one in found if one and one.has(READY) and not is_being_deleted(one)]

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


def _annotations(
    checkpoints: Iterable[VirtualMachineCheckpoint], template: ReplicaSetTemplate
) -> Mapping[str, str]:
    """Return the annotations of a VMI that starts from the first checkpoint of a template."""
    digest = template_hash(template)
    for checkpoint in checkpoints:
        if checkpoint.metadata.labels.get(TEMPLATE_HASH_LABEL) == digest:
            return fork_annotations(checkpoint)
    return {}


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
    if reference is None:
        return ()
    return (_target_key(reference.kind, Key(pool.metadata.namespace, reference.name)),)


def _target_key(kind: str, key: Key) -> str:
    return f"{kind} {key}"


def _owner_index(vmi: VMI) -> Sequence[str]:
    """Return the uid of the warm pool that controls a VMI."""
    owners = vmi.metadata.owner_references
    return tuple(owner.uid for owner in owners if owner.controller and owner.kind == WarmPool.kind)
