"""Bounds of the evictions of one cycle: in all, from each node, in each namespace.  Pure."""

from collections import Counter

from corral.cluster.descheduler.policy import Policy

Place = tuple[str, str]
"""A node and a namespace."""


class Limits:
    """The evictions of a cycle so far, and those that its policy allows.

    VMIs that still leave their node, after an earlier eviction, count as evicted.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_node: Counter[str] = Counter()
        self._by_namespace: Counter[str] = Counter()
        self.total = 0

    @property
    def is_exhausted(self) -> bool:
        """True if no pod at all may be evicted any more."""
        return self._policy.total is not None and self.total >= self._policy.total

    def exceeded(self, place: Place) -> str:
        """Return the limit that forbids an eviction, in the descheduler's words; "" if none."""
        node, namespace = place
        policy = self._policy
        if self.is_exhausted:
            return f"total eviction limit exceeded ({policy.total})"
        if policy.per_node is not None and self._by_node[node] >= policy.per_node:
            return f"node eviction limit exceeded ({policy.per_node})"
        if policy.per_namespace is not None and (
            self._by_namespace[namespace] >= policy.per_namespace
        ):
            return f"namespace eviction limit exceeded ({policy.per_namespace})"
        return ""

    def count(self, place: Place) -> None:
        """Count an eviction."""
        node, namespace = place
        self._by_node[node] += 1
        self._by_namespace[namespace] += 1
        self.total += 1
