"""LimitRanges: defaults for pods, and validation of pods and claims (LimitRanger).  Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from lightkube.models.core_v1 import (
    Container,
    LimitRange,
    LimitRangeItem,
    PersistentVolumeClaim,
    Pod,
)

from corral.api.kind import at
from corral.api.kinds.core import pod_resources
from corral.api.kinds.core.limit_range import CLAIM, CONTAINER, POD
from corral.api.kinds.core.pod_resources import Amounts, amounts
from corral.api.object import Document
from corral.api.quantity import Amount

ANNOTATION: Final = "kubernetes.io/limit-ranger"
"""Lists the defaults that a pod got."""


def set_defaults(pod: Document, limits: LimitRange) -> None:
    """Set default requests and limits of containers, and list them in the annotation."""
    for item in _items(limits, CONTAINER):
        defaulted: list[str] = []
        for part, word in (("containers", "container"), ("initContainers", "init container")):
            for container in at(pod, "spec", part) or ():
                defaulted += _default_container(container, word, item)
        if defaulted:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(defaulted)}"


def _default_container(container: dict[str, Any], word: str, item: LimitRangeItem) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    parts = (("requests", "request", item.defaultRequest), ("limits", "limit", item.default))
    for part, one, defaults in parts:
        missing_defaults = {
            name: quantity
            for name, quantity in (defaults or {}).items()
            if name not in (resources.get(part) or {})
        }
        if missing_defaults:
            resources[part] = {**(resources.get(part) or {}), **missing_defaults}
            yield f"{', '.join(sorted(missing_defaults))} {one} for {word} {container.get('name')}"


def pod_faults(pod: Pod, limits: LimitRange) -> list[str]:
    """Return why a pod violates the limits, in the real server's words."""
    assert pod.spec is not None
    found: list[str] = []
    for item in _items(limits, CONTAINER):
        for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
            requests, limits_of = _resources(container)
            found += _faults(item, requests, limits_of)
    for item in _items(limits, POD):
        requests = pod_resources.of_containers(pod.spec, pod_resources.REQUESTS)
        limits_of = pod_resources.of_containers(pod.spec, pod_resources.LIMITS)
        found += _faults(item, requests, limits_of)
    return found


def claim_faults(
    claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None, limits: LimitRange
) -> list[str]:
    """Return why a claim violates the limits; an unchanged request is not checked again."""
    requests = pod_resources.of_claim(claim)
    before = {} if old is None else pod_resources.of_claim(old)
    found: list[str] = []
    for item in _items(limits, CLAIM):
        for name, minimum in _bounds(item.min):
            if name not in requests or requests[name] != before.get(name):
                found += _minimum_faults(item, name, minimum, requests, {})
        for name, maximum in _bounds(item.max):
            if name not in requests or requests[name] != before.get(name):
                found += _maximum_faults(item, name, maximum, requests, requests, missing="request")
    return found


def refusal(faults: list[str]) -> str:
    """Return one message of several faults."""
    unique = list(dict.fromkeys(faults))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _items(limits: LimitRange, of: str) -> Iterator[LimitRangeItem]:
    for item in (limits.spec and limits.spec.limits) or ():
        if item.type == of:
            yield item


def _resources(container: Container) -> tuple[Amounts, Amounts]:
    resources = container.resources
    if resources is None:
        return {}, {}
    return amounts(resources.requests), amounts(resources.limits)


def _bounds(quantities: Mapping[str, str] | None) -> list[tuple[str, Amount]]:
    return sorted(amounts(quantities).items())


def _faults(item: LimitRangeItem, requests: Amounts, limits_of: Amounts) -> Iterator[str]:
    for name, minimum in _bounds(item.min):
        yield from _minimum_faults(item, name, minimum, requests, limits_of)
    for name, maximum in _bounds(item.max):
        yield from _maximum_faults(item, name, maximum, requests, limits_of)
    for name, ratio in _bounds(item.maxLimitRequestRatio):
        yield from _ratio_faults(item, name, ratio, requests, limits_of)


def _minimum_faults(
    item: LimitRangeItem, name: str, minimum: Amount, requests: Amounts, limits_of: Amounts
) -> Iterator[str]:
    rule = f"minimum {name} usage per {item.type} is {minimum}"
    if name not in requests:
        yield f"{rule}.  No request is specified"
    elif requests[name] < minimum:
        yield f"{rule}, but request is {requests[name]}"
    elif name in limits_of and limits_of[name] < minimum:
        yield f"{rule}, but limit is {limits_of[name]}"


def _maximum_faults(
    item: LimitRangeItem,
    name: str,
    maximum: Amount,
    requests: Amounts,
    limits_of: Amounts,
    *,
    missing: Literal["limit", "request"] = "limit",
) -> Iterator[str]:
    rule = f"maximum {name} usage per {item.type} is {maximum}"
    if name not in limits_of:
        yield f"{rule}.  No {missing} is specified"
    elif limits_of[name] > maximum:
        yield f"{rule}, but {missing} is {limits_of[name]}"
    elif name in requests and requests[name] > maximum:
        yield f"{rule}, but request is {requests[name]}"


def _ratio_faults(
    item: LimitRangeItem, name: str, ratio: Amount, requests: Amounts, limits_of: Amounts
) -> Iterator[str]:
    rule = f"{name} max limit to request ratio per {item.type} is {ratio}"
    if not requests.get(name):
        yield f"{rule}, but no request is specified or request is 0"
    elif not limits_of.get(name):
        yield f"{rule}, but no limit is specified or limit is 0"
    elif (found := limits_of[name].nanos / requests[name].nanos) > ratio.nanos / 10**9:
        yield f"{rule}, but provided ratio is {found:f}"
