"""IP families of Services, from their spec, their previous spec and the cluster's families.

Pure functions on the spec of a Service with defaults (Kubernetes' dual-stack rules).
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


def assign_families(spec: Document, old: Document | None, families: Sequence[str]) -> list[Cause]:
    """Set ``ipFamilies`` and ``ipFamilyPolicy`` of a Service; return causes if it is invalid.

    ``old`` is its previous spec, ``families`` are the cluster's, the default first.
    """
    if is_external_name(spec) or _is_unchanged(spec, old):
        return []
    has_own_endpoints = is_headless(spec) and not spec.get(
        "selector"
    )  # the author of its endpoints decides
    default_policy = REQUIRE_DUAL_STACK if has_own_endpoints else SINGLE_STACK
    spec.setdefault("ipFamilyPolicy", (old or {}).get("ipFamilyPolicy") or default_policy)
    if causes := address_causes(spec):
        return causes
    if old is not None:
        causes += _release_secondary(spec, old)
    causes += _single_stack_causes(spec)
    causes += _families_of_addresses(spec, families)
    if causes:
        return causes
    if not has_own_endpoints and (causes := list(_unconfigured(spec, families))):
        return causes
    chosen = spec.setdefault("ipFamilies", [families[0]])
    allows_dual_stack = has_own_endpoints or len(families) == 2
    if spec["ipFamilyPolicy"] != SINGLE_STACK and len(chosen) == 1 and allows_dual_stack:
        spec["ipFamilies"] = [*chosen, _OTHER[chosen[0]]]
    return []


def _is_unchanged(spec: Document, old: Document | None) -> bool:
    """Return whether a PreferDualStack Service keeps the addresses that it has."""
    return (
        old is not None
        and spec.get("ipFamilyPolicy") == PREFER_DUAL_STACK
        and all(
            spec.get(field) == old.get(field)
            for field in ("ipFamilyPolicy", "ipFamilies", "clusterIPs")
        )
    )


def _release_secondary(spec: Document, old: Document) -> Iterator[Cause]:
    """Drop the secondary address and family for SingleStack; yield causes for other policies."""
    for field, noun in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        new, previous = spec.get(field) or [], old.get(field) or []
        if spec["ipFamilyPolicy"] == SINGLE_STACK:
            if new == previous and len(new) > 1:
                spec[field] = new[:1]
        elif len(new) == 1 and len(previous) == 2 and new[0] == previous[0]:
            fault = f"must be 'SingleStack' to release the secondary {noun}"
            yield invalid(_PATH, spec["ipFamilyPolicy"], fault)


def _single_stack_causes(spec: Document) -> Iterator[Cause]:
    if spec["ipFamilyPolicy"] != SINGLE_STACK:
        return
    for field, noun in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(field) or ()) == 2:
            fault = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {noun} are "
            yield invalid(_PATH, spec["ipFamilyPolicy"], fault + "specified")


def _families_of_addresses(spec: Document, families: Sequence[str]) -> Iterator[Cause]:
    """Set ``ipFamilies`` from requested addresses; yield causes for unconfigured families."""
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


def _unconfigured(spec: Document, families: Sequence[str]) -> Iterator[Cause]:
    if spec["ipFamilyPolicy"] == REQUIRE_DUAL_STACK and len(families) < 2:
        fault = "this cluster is not configured for dual-stack services"
        yield invalid(_PATH, REQUIRE_DUAL_STACK, fault)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in families:
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
