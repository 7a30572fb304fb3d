"""Index of autoscalers by the pods of their targets, to find two that scale the same pods."""

from collections.abc import Iterable, Iterator

from lightkube.models.core_v1 import Pod

from corral.api.object import Key
from corral.api.selectors import LabelSelector
from corral.reconcile.objects import key_of, labels_of


class SelectorConflicts:
    """The selectors of all autoscalers' targets, indexed by label."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._by_label: dict[str, set[Key]] = {}

    def set(self, autoscaler: Key, selector: LabelSelector) -> None:
        if self._selectors.get(autoscaler) == selector:
            return
        self.forget(autoscaler)
        self._selectors[autoscaler] = selector
        self._by_label.setdefault(_index_key(autoscaler, selector), set()).add(autoscaler)

    def forget(self, autoscaler: Key) -> None:
        selector = self._selectors.pop(autoscaler, None)
        if selector is not None:
            key = _index_key(autoscaler, selector)
            self._by_label[key].discard(autoscaler)
            if not self._by_label[key]:
                del self._by_label[key]

    def of(self, pods: Iterable[Pod]) -> list[Key]:
        """Return the autoscalers that select any of these pods, sorted."""
        return sorted(
            {
                autoscaler
                for pod in pods
                for key in _index_keys(pod)
                for autoscaler in self._by_label.get(key, ())
                if self._selectors[autoscaler].matches(labels_of(pod))
            }
        )


def _index_key(autoscaler: Key, selector: LabelSelector) -> str:
    """Return the index key of a selector: a label that all its pods have; none without one."""
    for requirement in selector.requirements:
        if requirement.operator in ("=", "=="):
            return f"{autoscaler.namespace}/{requirement.key}={requirement.values[0]}"
    return f"{autoscaler.namespace}/"


def _index_keys(pod: Pod) -> Iterator[str]:
    namespace = key_of(pod).namespace
    yield f"{namespace}/"
    for label, value in labels_of(pod).items():
        yield f"{namespace}/{label}={value}"
