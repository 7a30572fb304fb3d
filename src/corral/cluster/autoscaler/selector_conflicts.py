"""Which autoscalers look after which pods, so that no two of them pull at the same ones."""

from collections.abc import Iterable, Iterator

from lightkube.models.core_v1 import Pod

from corral.api.object import Key
from corral.api.selectors import LabelSelector
from corral.reconcile.objects import key_of, labels_of


class Rivals:
    """The pods that each autoscaler's target selects, found by a pod's labels."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._by_word: dict[str, set[Key]] = {}

    def put(self, autoscaler: Key, selector: LabelSelector) -> None:
        if self._selectors.get(autoscaler) == selector:
            return
        self.forget(autoscaler)
        self._selectors[autoscaler] = selector
        self._by_word.setdefault(_word(autoscaler, selector), set()).add(autoscaler)

    def forget(self, autoscaler: Key) -> None:
        selector = self._selectors.pop(autoscaler, None)
        if selector is not None:
            word = _word(autoscaler, selector)
            self._by_word[word].discard(autoscaler)
            if not self._by_word[word]:
                del self._by_word[word]

    def of(self, pods: Iterable[Pod]) -> list[Key]:
        """The autoscalers that look after any of these pods, in order."""
        return sorted(
            {
                autoscaler
                for pod in pods
                for word in _words(pod)
                for autoscaler in self._by_word.get(word, ())
                if self._selectors[autoscaler].matches(labels_of(pod))
            }
        )


def _word(autoscaler: Key, selector: LabelSelector) -> str:
    """By what a selector is found: a label that its pods all have; none where it asks for none."""
    for requirement in selector.requirements:
        if requirement.operator in ("=", "=="):
            return f"{autoscaler.namespace}/{requirement.key}={requirement.values[0]}"
    return f"{autoscaler.namespace}/"


def _words(pod: Pod) -> Iterator[str]:
    namespace = key_of(pod).namespace
    yield f"{namespace}/"
    for label, value in labels_of(pod).items():
        yield f"{namespace}/{label}={value}"
