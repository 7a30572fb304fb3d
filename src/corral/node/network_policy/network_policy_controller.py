"""Follows policies, pods and namespaces, and keeps the packet filter's table of them.

Where there is no policy there is no table either, and packets take no notice.  As soon as there is
one, the table knows every pod: an address of the pods' ranges that it does not know is a pod whose
labels have not been seen yet, and nothing reaches it or leaves it.  So no pod is open before its
policies count, whatever comes first: its address in the API, its links, or its guest.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lightkube.models.core_v1 import Namespace, Pod
from lightkube.models.networking_v1 import NetworkPolicy

from corral.aio import wait_at_most
from corral.api.errors import BadRequest
from corral.api.object import Key
from corral.node.health import Health
from corral.node.network import namespaces, nft
from corral.node.network.netlink import Network as Range, NetworkError
from corral.node.network_policy.nft_rules import PROBE, REMOVAL
from corral.node.network_policy.nft_table import Table
from corral.node.network_policy.parsed_policy import Member, Policy, member_of, policy_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of, labels_of

PROBE_SECONDS = 30.0
"""So often is looked whether the table is still there."""
RETRY_SECONDS = 1.0
"""After a refusal everything is written again, after this long."""


class Network(Protocol):
    """What has to be known of the machine network."""

    @property
    def namespace(self) -> namespaces.Namespace: ...
    @property
    def pod_cidrs(self) -> Sequence[Range]: ...


class Policies:
    """The policies of a cluster, in the machine namespace."""

    def __init__(
        self,
        context: ControllerContext,
        network: Network,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_change`` is told when ``problems`` answers something new."""
        self._network = network
        self._changed = on_change
        self._health = Health("network policies", on_change)
        self._unread: dict[Key, str] = {}
        self._pods = context.informers.of(Pod)
        self._namespaces = context.informers.of(Namespace)
        self._policies = context.informers.of(NetworkPolicy)
        self._table: Table | None = None
        """What has been written; None where there is nothing, or something unknown."""
        self._is_absent = False
        self._new_pods: set[Key] = set()
        self._new_namespaces: set[str] = set()
        self._new_policies: set[Key] = set()
        self._woken = asyncio.Event()
        self._pods.handle(self._pod_changed)
        self._namespaces.handle(self._namespace_changed)
        self._policies.handle(self._policy_changed)

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        left_out = (
            f"the NetworkPolicy {key} is left out: {why}" for key, why in self._unread.items()
        )
        return [*filter(None, [self._health.problem]), *left_out]

    async def run(self) -> None:
        """Keep the table until cancelled; what is in it stays.

        Nothing is written before the present state is known: what an earlier process wrote serves
        until then.
        """
        for informer in (self._pods, self._namespaces, self._policies):
            await informer.synced()
        while True:
            self._woken.clear()
            try:
                await self._write()
            except NetworkError as error:
                self._health.report(f"NetworkPolicies are not in force: {error.full_message}")
                self._table, self._is_absent = None, False
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._health.report("")
                await wait_at_most(self._woken, PROBE_SECONDS)

    async def _write(self) -> None:
        """Bring the kernel up to date: by what changed, or as a whole."""
        pods, self._new_pods = self._new_pods, set()
        names, self._new_namespaces = self._new_namespaces, set()
        keys, self._new_policies = self._new_policies, set()
        if not self._policies.items():
            if not self._is_absent:
                await self._network.namespace.call(apply, lambda: REMOVAL)
            self._table, self._is_absent = None, True
            return
        table, is_new = self._table or Table(self._network.pod_cidrs), self._table is None
        if is_new:
            keys = {key_of(one) for one in self._policies.items()}
            names = {key_of(one).name for one in self._namespaces.items()}
            pods = {key_of(one) for one in self._pods.items()}
        policies = {key: self._policy(key) for key in keys}
        labels = {name: self._labels(name) for name in names}
        members = {key: self._member(key) for key in pods}

        def text() -> str:
            change = table.change(policies=policies, namespaces=labels, members=members)
            return table.whole() if is_new else change

        # Thousands of pods take a while to judge: that is done where others are not kept waiting.
        await self._network.namespace.call(apply, text)
        self._table, self._is_absent = table, False

    def resync(self) -> None:
        """Somebody may have removed the table."""
        self._woken.set()

    def _policy(self, key: Key) -> Policy | None:
        policy = self._policies.get(key)
        was_unread = self._unread.pop(key, "")
        try:
            return None if policy is None else policy_of(policy)
        except BadRequest as error:
            self._unread[key] = str(error)
            return None
        finally:
            if self._unread.get(key, "") != was_unread:
                self._changed()

    def _labels(self, name: str) -> Mapping[str, str] | None:
        namespace = self._namespaces.get(Key("", name))
        return None if namespace is None else labels_of(namespace)

    def _member(self, key: Key) -> Member | None:
        pod = self._pods.get(key)
        return None if pod is None else member_of(pod, self._network.pod_cidrs)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        ranges = self._network.pod_cidrs
        members = [member_of(one, ranges) if one is not None else None for one in (old, new)]
        if members[0] != members[1]:
            self._new_pods |= _keys(old, new)
            self._woken.set()

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or labels_of(old) != labels_of(new):
            self._new_namespaces |= {key.name for key in _keys(old, new)}
            self._woken.set()

    def _policy_changed(self, old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._new_policies |= _keys(old, new)
            self._woken.set()


def apply(text: Callable[[], str]) -> None:
    """Carry out a transaction; in steps where it is too much for the kernel.

    Acts on the calling thread's namespace; raises NetworkError.  No step lets anything pass that
    the whole does not: what makes pods known comes after what restrains them, and who is not known
    is not reached.
    """
    whole = text() or PROBE
    try:
        nft.apply(whole)
    except NetworkError:
        if len(whole) < nft.TRANSACTION_CHARACTERS:
            raise
        for step in nft.split_transactions(
            whole.splitlines()
        ):  # the table's frame is within the first one
            nft.apply(step)


def _keys(*told: Pod | Namespace | NetworkPolicy | None) -> set[Key]:
    return {key_of(one) for one in told if one is not None}
