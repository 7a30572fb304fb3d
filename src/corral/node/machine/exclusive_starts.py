"""Starts of exclusive machines: under a valid Lease only, and for a pod that is not replaced."""

from lightkube.models.core_v1 import Pod

from corral.api.errors import ApiError, NotFound
from corral.client.client import Client
from corral.node.fencing.lease import NodeLease
from corral.node.hypervisor import StartError
from corral.node.state.machine_record import Record
from corral.reconcile.objects import is_being_deleted, uid_of

EXPIRED = "NodeLeaseExpired"
"""Reason of a start that waits until the node has renewed its Lease."""


class ExclusiveStarts:
    """Allows starts of exclusive machines.  Without a ``lease`` all are allowed.

    The control plane deletes the pod before it checks that the Lease has expired, and only then
    lets another node start the VMI.  So a node that reads the pod, undeleted, while its Lease is
    valid knows that no other may start the VMI before this Lease expires.
    """

    def __init__(self, client: Client, lease: NodeLease | None) -> None:
        self._client = client
        self._lease = lease
        self._confirmed: dict[str, int] = {}
        """The number of lapses of the Lease when each machine's pod was read, by the pod's uid."""

    async def confirm(self, record: Record) -> None:
        """Read the pod from the API server.  Raises StartError if it may be replaced."""
        if self._lease is None or not record.exclusive:
            return
        self._require_valid(self._lease)
        lapses = self._lease.lapses
        try:
            pod = await self._client.get(Pod, record.pod, record.namespace)
        except NotFound:
            pod = None
        except ApiError as error:
            raise StartError(EXPIRED, f"the pod cannot be read: {error.message}") from error
        if pod is None or uid_of(pod) != record.pod_uid or is_being_deleted(pod):
            raise StartError("PodDeleted", f"the pod {record.pod} is deleted", lasting=True)
        self._confirmed[record.pod_uid] = lapses

    def require(self, record: Record) -> None:
        """Raise StartError unless the machine may run now."""
        if self._lease is None or not record.exclusive:
            return
        self._require_valid(self._lease)
        if self._confirmed.get(record.pod_uid) != self._lease.lapses:
            raise StartError(EXPIRED, "the node's Lease had expired meanwhile")

    def forget(self, record: Record) -> None:
        """Drop a machine that is removed; its VMI may have come back in another pod."""
        self._confirmed.pop(record.pod_uid, None)

    @staticmethod
    def _require_valid(lease: NodeLease) -> None:
        if not lease.is_valid:
            raise StartError(
                EXPIRED,
                "the node has not renewed its Lease in time, so that the cluster may start the VMI "
                "elsewhere",
                "it starts once the node reaches the API server",
            )
