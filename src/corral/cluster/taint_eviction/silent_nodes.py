"""Silent nodes: for how long, as this process saw it, and whether they have fenced themselves.

A node ends its exclusive machines 40 s after it has sent its last renewal, its watchdog a second
later.  This process sees that renewal after it was sent; so once it has seen none for 50 s, they
have ended.  It counts by its own monotonic clock: the times in a Lease are another host's.
"""

from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Node

from corral.api.errors import NotFound
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.node_taints import ready_status
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of, uid_of, version_of


class SilentNodes:
    """The last renewal of each node's Lease, by when it was observed."""

    def __init__(self, context: ControllerContext) -> None:
        self.leases = context.informers.of(Lease)
        self._client = context.client
        self._monotonic = context.monotonic
        self._observed: dict[str, tuple[str, float]] = {}
        """The version of each node's Lease, and when it was observed."""
        self.leases.handle(self._lease_changed)

    async def seconds_until_fenced(self, node: Node) -> float | None:
        """Return in how many seconds a silent node may have fenced itself: 0 if it has.

        None if the node does not do so.  Raises ApiError.
        """
        if not _fences_itself(node):
            return None
        version, since = self._observed.get(key_of(node).name, ("", self._monotonic()))
        left = since + node_lease.REPLACEMENT_SECONDS - self._monotonic()
        if left > 0:
            return left
        return 0.0 if await self._is_unchanged(node, version) else node_lease.REPLACEMENT_SECONDS

    async def _is_unchanged(self, node: Node, version: str) -> bool:
        """Query the API server: a cache may lag, and have missed a renewal."""
        name = key_of(node).name
        try:
            lease = await self._client.get(Lease, name, node_lease.NAMESPACE)
            present = await self._client.get(Node, name)
        except NotFound:
            return False
        same = version_of(lease) == version and uid_of(present) == uid_of(node)
        return same and _fences_itself(present)

    def _lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        lease = new or old
        if lease is None or key_of(lease).namespace != node_lease.NAMESPACE:
            return
        name = key_of(lease).name
        if new is None:
            self._observed.pop(name, None)
        elif self._observed.get(name, ("", 0.0))[0] != version_of(new):
            self._observed[name] = (version_of(new), self._monotonic())


def _fences_itself(node: Node) -> bool:
    """Report whether a node is silent, and has said that it ends its exclusive machines then."""
    conditions = (node.status and node.status.conditions) or ()
    statuses = {each.type: each.status for each in conditions}
    return ready_status(node) == "Unknown" and statuses.get(node_lease.SELF_FENCING) == "True"
