"""Which pods of a node are gone for certain: only then nothing may remain of their machines."""

from lightkube.models.core_v1 import Pod

from corral.api.kinds import kind_of
from corral.api.object import Key
from corral.client.client import Client
from corral.node.machine_index import Roster
from corral.reconcile.deletion import is_there
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of, uid_of


class DeletedPods:
    """Remembers which pods of machines the server said are deleted, and asks about all others.

    What is missing in a cache may be damaged on the server's disk, and there all the same.
    """

    def __init__(self, client: Client, pods: Informer[Pod], roster: Roster) -> None:
        self._client = client
        self._roster = roster
        self._uids: set[str] = set()
        pods.handle_deleted(self._note)

    async def include(self, key: Key, uid: str) -> bool:
        """Whether the pod of this uid, which is in no cache, is gone.  Raises ApiError."""
        return uid in self._uids or not await is_there(self._client, key, uid, kind_of(Pod))

    def forget(self, uid: str) -> None:
        """Nothing remains of that pod's machine: nobody asks any more."""
        self._uids.discard(uid)

    def _note(self, pod: Pod) -> None:
        machine = self._roster.machine_of_pod(key_of(pod))
        if machine is not None and machine.record.pod_uid == uid_of(pod):
            self._uids.add(uid_of(pod))
