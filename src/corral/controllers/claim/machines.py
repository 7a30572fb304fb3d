"""The machines of claims, and the status that both controllers of claims write."""

from collections.abc import Sequence

from corral.api.kinds.corral.claim import CLAIM_LABEL, VirtualMachineClaim
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.client.client import Client
from corral.controllers.claim.status import difference
from corral.reconcile.informer import Informer
from corral.reconcile.objects import controller_uid
from corral.reconcile.ownership import patch_preconditions

VMI = VirtualMachineInstance


def index_machines(vmis: Informer[VMI]) -> None:
    """Add the index that ``machines_of`` reads: VMIs that have the label of a claim, by its key."""
    vmis.index(_claim_of)


def machines_of(vmis: Informer[VMI], claim: VirtualMachineClaim) -> list[VMI]:
    """Return the cached VMIs that a claim owns, by name: one, unless something went wrong."""
    labelled = vmis.indexed(_claim_of, str(claim.key))
    owned = [vmi for vmi in labelled if controller_uid(vmi) == claim.metadata.uid]
    return sorted(owned, key=lambda vmi: vmi.metadata.name)


async def patch_status(client: Client, claim: VirtualMachineClaim, new: Document) -> None:
    """Write a status, unless it is the present one.

    Raises ApiError: Conflict if the claim has changed since it was cached.
    """
    if change := difference(claim.status, new):
        patch = {"metadata": patch_preconditions(claim), "status": change}
        await client.patch(type(claim), claim.key, patch, subresource="status")


def _claim_of(vmi: VMI) -> Sequence[str]:
    name = vmi.metadata.labels.get(CLAIM_LABEL)
    return () if name is None else (str(Key(vmi.metadata.namespace, name)),)
