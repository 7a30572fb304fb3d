"""What limit ranges give to pods, and what they refuse pods and claims (LimitRanger).  Pure."""

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
"""Tells of a pod what it was given."""


def give(pod: Document, limits: LimitRange) -> None:
    """Give the containers of a pod what they do not say themselves, and tell so."""
    for item in _items(limits, CONTAINER):
        told: list[str] = []
        for part, word in (("containers", "container"), ("initContainers", "init container")):
            for container in at(pod, "spec", part) or ():
                told += _give_container(container, word, item)
        if told:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(told)}"


def _give_container(container: dict[str, Any], word: str, item: LimitRangeItem) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    parts = (("requests", "request", item.defaultRequest), ("limits", "limit", item.default))
    for part, one, defaults in parts:
        given = {
            name: quantity
            for name, quantity in (defaults or {}).items()
            if name not in (resources.get(part) or {})
        }
        if given:
            resources[part] = {**(resources.get(part) or {}), **given}
            yield f"{', '.join(sorted(given))} {one} for {word} {container.get('name')}"


def pod_faults(pod: Pod, limits: LimitRange) -> list[str]:
    """What a pod may not ask for, in the real server's words."""
    assert pod.spec is not None
    found: list[str] = []
    for item in _items(limits, CONTAINER):
        for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
            asked, limit = _resources(container)
            found += _faults(item, asked, limit)
    for item in _items(limits, POD):
        asked = pod_resources.of_containers(pod.spec, pod_resources.REQUESTS)
        limit = pod_resources.of_containers(pod.spec, pod_resources.LIMITS)
        found += _faults(item, asked, limit)
    return found


def claim_faults(
    claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None, limits: LimitRange
) -> list[str]:
    """The same of a claim; what it has been granted already is not asked about again."""
    asked = pod_resources.of_claim(claim)
    before = {} if old is None else pod_resources.of_claim(old)
    found: list[str] = []
    for item in _items(limits, CLAIM):
        for name, least in _bounds(item.min):
            if name not in asked or asked[name] != before.get(name):
                found += _too_little(item, name, least, asked, {})
        for name, most in _bounds(item.max):
            if name not in asked or asked[name] != before.get(name):
                found += _too_much(item, name, most, asked, asked, missing="request")
    return found


def refusal(faults: list[str]) -> str:
    """Several faults in one message."""
    told = list(dict.fromkeys(faults))
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


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


def _faults(item: LimitRangeItem, asked: Amounts, limit: Amounts) -> Iterator[str]:
    for name, least in _bounds(item.min):
        yield from _too_little(item, name, least, asked, limit)
    for name, most in _bounds(item.max):
        yield from _too_much(item, name, most, asked, limit)
    for name, ratio in _bounds(item.maxLimitRequestRatio):
        yield from _too_far(item, name, ratio, asked, limit)


def _too_little(
    item: LimitRangeItem, name: str, least: Amount, asked: Amounts, limit: Amounts
) -> Iterator[str]:
    whole = f"minimum {name} usage per {item.type} is {least}"
    if name not in asked:
        yield f"{whole}.  No request is specified"
    elif asked[name] < least:
        yield f"{whole}, but request is {asked[name]}"
    elif name in limit and limit[name] < least:
        yield f"{whole}, but limit is {limit[name]}"


def _too_much(
    item: LimitRangeItem,
    name: str,
    most: Amount,
    asked: Amounts,
    limit: Amounts,
    *,
    missing: Literal["limit", "request"] = "limit",
) -> Iterator[str]:
    whole = f"maximum {name} usage per {item.type} is {most}"
    if name not in limit:
        yield f"{whole}.  No {missing} is specified"
    elif limit[name] > most:
        yield f"{whole}, but {missing} is {limit[name]}"
    elif name in asked and asked[name] > most:
        yield f"{whole}, but request is {asked[name]}"


def _too_far(
    item: LimitRangeItem, name: str, ratio: Amount, asked: Amounts, limit: Amounts
) -> Iterator[str]:
    whole = f"{name} max limit to request ratio per {item.type} is {ratio}"
    if not asked.get(name):
        yield f"{whole}, but no request is specified or request is 0"
    elif not limit.get(name):
        yield f"{whole}, but no limit is specified or limit is 0"
    elif (found := limit[name].nanos / asked[name].nanos) > ratio.nanos / 10**9:
        yield f"{whole}, but provided ratio is {found:f}"
