"""Watches NetworkPolicies, pods and namespaces, and writes the nftables table.

Without policies there is no table, and no cost for packets.  With the first policy the table has
all pods: an address of the pod CIDRs that it does not have belongs to a pod whose labels have not
been seen yet, and its packets are dropped.  So no pod is reachable before its policies apply, in
whatever order its address in the API, its link and its guest appear.
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
from corral.node.network_policy.parsed_policy import PodInfo, Policy, parse_policy, pod_info
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import key_of, labels_of

PROBE_SECONDS = 30.0
"""Interval of checks whether the table still exists."""
RETRY_SECONDS = 1.0
"""Delay after a failure, which rewrites the whole table."""


class Network(Protocol):
    """The part of the machine network that policies need."""

    @property
    def namespace(self) -> namespaces.Namespace: ...
    @property
    def pod_cidrs(self) -> Sequence[Range]: ...


class NetworkPolicyController:
    """Enforces the NetworkPolicies of a cluster in the machine namespace."""

    def __init__(
        self,
        context: ControllerContext,
        network: Network,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``on_change`` when ``problems()`` changes."""
        self._network = network
        self._on_change = on_change
        self._health = Health("network policies", on_change)
        self._invalid: dict[Key, str] = {}
        self._pods = context.informers.of(Pod)
        self._namespaces = context.informers.of(Namespace)
        self._policies = context.informers.of(NetworkPolicy)
        self._table: Table | None = None
        """The table as written; None for no table, or one of unknown content."""
        self._is_removed = False
        self._changed_pods: set[Key] = set()
        self._changed_namespaces: set[str] = set()
        self._changed_policies: set[Key] = set()
        self._sync_needed = asyncio.Event()
        self._pods.handle(self._pod_changed)
        self._namespaces.handle(self._namespace_changed)
        self._policies.handle(self._policy_changed)

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        invalid = (
            f"the NetworkPolicy {key} is ignored: {message}"
            for key, message in self._invalid.items()
        )
        return [*filter(None, [self._health.problem]), *invalid]

    async def run(self) -> None:
        """Keep the table up to date until cancelled; it stays.

        Nothing is written before the caches have synced: until then the table of an earlier process
        serves.
        """
        for informer in (self._pods, self._namespaces, self._policies):
            await informer.synced()
        while True:
            self._sync_needed.clear()
            try:
                await self._write()
            except NetworkError as error:
                self._health.report(f"NetworkPolicies are not enforced: {error.full_message}")
                self._table, self._is_removed = None, False
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._health.report("")
                await wait_at_most(self._sync_needed, PROBE_SECONDS)

    async def _write(self) -> None:
        """Write the changes to the kernel, or the whole table."""
        pods, self._changed_pods = self._changed_pods, set()
        names, self._changed_namespaces = self._changed_namespaces, set()
        keys, self._changed_policies = self._changed_policies, set()
        if not self._policies.items():
            if not self._is_removed:
                await self._network.namespace.call(apply, lambda: REMOVAL)
            self._table, self._is_removed = None, True
            return
        table, is_new = self._table or Table(self._network.pod_cidrs), self._table is None
        if is_new:
            keys = {key_of(each) for each in self._policies.items()}
            names = {key_of(each).name for each in self._namespaces.items()}
            pods = {key_of(each) for each in self._pods.items()}
        policies = {key: self._policy(key) for key in keys}
        labels = {name: self._labels(name) for name in names}
        pod_infos = {key: self._pod_info(key) for key in pods}

        def text() -> str:
            change = table.change(policies=policies, namespaces=labels, pod_infos=pod_infos)
            return table.full_transaction() if is_new else change

        # Thousands of pods take a while to evaluate: in the thread, not in the event loop.
        await self._network.namespace.call(apply, text)
        self._table, self._is_removed = table, False

    def resync(self) -> None:
        """Check the table: it may have been removed."""
        self._sync_needed.set()

    def _policy(self, key: Key) -> Policy | None:
        policy = self._policies.get(key)
        old_error = self._invalid.pop(key, "")
        try:
            return None if policy is None else parse_policy(policy)
        except BadRequest as error:
            self._invalid[key] = str(error)
            return None
        finally:
            if self._invalid.get(key, "") != old_error:
                self._on_change()

    def _labels(self, name: str) -> Mapping[str, str] | None:
        namespace = self._namespaces.get(Key("", name))
        return None if namespace is None else labels_of(namespace)

    def _pod_info(self, key: Key) -> PodInfo | None:
        pod = self._pods.get(key)
        return None if pod is None else pod_info(pod, self._network.pod_cidrs)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        ranges = self._network.pod_cidrs
        pod_infos = [pod_info(each, ranges) if each is not None else None for each in (old, new)]
        if pod_infos[0] != pod_infos[1]:
            self._changed_pods |= _keys(old, new)
            self._sync_needed.set()

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or labels_of(old) != labels_of(new):
            self._changed_namespaces |= {key.name for key in _keys(old, new)}
            self._sync_needed.set()

    def _policy_changed(self, old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._changed_policies |= _keys(old, new)
            self._sync_needed.set()


def apply(text: Callable[[], str]) -> None:
    """Run a transaction, or several if it is too large for the kernel.

    Acts on the calling thread's namespace; raises NetworkError.  No intermediate step allows more
    than the final state: the restrictions come before the elements of pods, and pods without
    elements are not reachable.
    """
    whole = text() or PROBE
    try:
        nft.apply(whole)
    except NetworkError:
        if len(whole) < nft.TRANSACTION_CHARACTERS:
            raise
        for step in nft.split_transactions(
            whole.splitlines()
        ):  # the first one has the whole empty table
            nft.apply(step)


def _keys(*objects: Pod | Namespace | NetworkPolicy | None) -> set[Key]:
    return {key_of(each) for each in objects if each is not None}
