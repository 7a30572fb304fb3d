"""Which families of addresses a service gets: what it asks for, what it had, what there is.

Pure decisions, on the spec of a service that has its defaults (Kubernetes' dual-stack rules).
"""

from collections.abc import Iterator, Sequence

from corral.api.errors import Cause
from corral.api.kinds.causes import invalid
from corral.api.kinds.networking.service_addresses import address_causes
from corral.api.kinds.networking.service_spec import (
    IPV4,
    IPV6,
    NONE,
    PREFER_DUAL_STACK,
    REQUIRE_DUAL_STACK,
    SINGLE_STACK,
    family_of,
    is_external_name,
    is_headless,
)
from corral.api.object import Document

_OTHER = {IPV4: IPV6, IPV6: IPV4}
_PATH = "spec.ipFamilyPolicy"


def settle(spec: Document, old: Document | None, families: Sequence[str]) -> list[Cause]:
    """Complete ``ipFamilies`` and ``ipFamilyPolicy`` of a service; answers why it cannot be.

    ``old`` is the spec it had before, ``families`` are those of the cluster, its default first.
    """
    if is_external_name(spec) or _stays_as_it_is(spec, old):
        return []
    anyones = is_headless(spec) and not spec.get("selector")  # whoever makes its endpoints decides
    usual = REQUIRE_DUAL_STACK if anyones else SINGLE_STACK
    spec.setdefault("ipFamilyPolicy", (old or {}).get("ipFamilyPolicy") or usual)
    if causes := address_causes(spec):
        return causes
    if old is not None:
        causes += _given_up(spec, old)
    causes += _too_many_for_one(spec)
    causes += _of_addresses(spec, families)
    if causes:
        return causes
    if not anyones and (causes := list(_not_here(spec, families))):
        return causes
    chosen = spec.setdefault("ipFamilies", [families[0]])
    may_have_two = anyones or len(families) == 2
    if spec["ipFamilyPolicy"] != SINGLE_STACK and len(chosen) == 1 and may_have_two:
        spec["ipFamilies"] = [*chosen, _OTHER[chosen[0]]]
    return []


def _stays_as_it_is(spec: Document, old: Document | None) -> bool:
    """One that takes what there is keeps what it got, also when there is more or less now."""
    return (
        old is not None
        and spec.get("ipFamilyPolicy") == PREFER_DUAL_STACK
        and all(
            spec.get(field) == old.get(field)
            for field in ("ipFamilyPolicy", "ipFamilies", "clusterIPs")
        )
    )


def _given_up(spec: Document, old: Document) -> Iterator[Cause]:
    """The second of two goes when the policy says so, and not otherwise."""
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        new, known = spec.get(field) or [], old.get(field) or []
        if spec["ipFamilyPolicy"] == SINGLE_STACK:
            if new == known and len(new) > 1:
                spec[field] = new[:1]
        elif len(new) == 1 and len(known) == 2 and new[0] == known[0]:
            fault = f"must be 'SingleStack' to release the secondary {what}"
            yield invalid(_PATH, spec["ipFamilyPolicy"], fault)


def _too_many_for_one(spec: Document) -> Iterator[Cause]:
    if spec["ipFamilyPolicy"] != SINGLE_STACK:
        return
    for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(field) or ()) == 2:
            fault = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are "
            yield invalid(_PATH, spec["ipFamilyPolicy"], fault + "specified")


def _of_addresses(spec: Document, families: Sequence[str]) -> Iterator[Cause]:
    """Addresses that are asked for tell their families."""
    chosen = list(spec.get("ipFamilies") or ())
    addresses = spec.get("clusterIPs") or []
    if addresses == [NONE]:
        return
    for index, address in enumerate(addresses[len(chosen) :], len(chosen)):
        family = family_of(address)
        if family not in families:
            fault = f"{family} is not configured on this cluster"
            yield invalid(f"spec.clusterIPs[{index}]", addresses, fault)
        chosen.append(family)
    if chosen:
        spec["ipFamilies"] = chosen


def _not_here(spec: Document, families: Sequence[str]) -> Iterator[Cause]:
    if spec["ipFamilyPolicy"] == REQUIRE_DUAL_STACK and len(families) < 2:
        fault = "this cluster is not configured for dual-stack services"
        yield invalid(_PATH, REQUIRE_DUAL_STACK, fault)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in families:
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
