"""Validation of cluster IPs of Services, their IP families, and changes of both.

A Service has its first address in both ``clusterIP`` and ``clusterIPs``, and the family of each
address in ``ipFamilies``; ``ipFamilyPolicy`` determines their number.
"""

from collections.abc import Iterator
from itertools import chain

from corral.api.addresses import address_faults
from corral.api.errors import Cause, limited
from corral.api.kinds.causes import duplicate, each_invalid, invalid, required, unsupported
from corral.api.kinds.networking.service_spec import (
    IPV4,
    IPV6,
    NONE,
    POLICIES,
    SINGLE_STACK,
    family_of,
    is_external_name,
    is_headless,
)
from corral.api.object import Document


def address_causes(spec: Document) -> list[Cause]:
    """Return the causes of invalid addresses and families of a Service."""
    if is_external_name(spec):
        return []
    addresses = spec.get("clusterIPs") or []
    causes = limited(chain(_check_first_address(spec, addresses), _check_families(spec)))
    invalid_addresses = limited(_check_addresses(addresses))
    causes += invalid_addresses
    if len(addresses) > 2:
        causes.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    if not invalid_addresses:
        causes += _check_address_families(addresses, spec.get("ipFamilies") or [])
    return causes


def _check_first_address(spec: Document, addresses: list[str]) -> Iterator[Cause]:
    path, first = "spec.clusterIPs", spec.get("clusterIP")
    if not first:
        if addresses:
            yield invalid(path, addresses, "must be empty when `clusterIP` is not specified")
    elif not addresses:
        yield required(path)
    elif addresses[0] != first:
        yield invalid(path, addresses, "first value must match `clusterIP`")


def _check_families(spec: Document) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        path = f"spec.ipFamilies[{index}]"
        if family not in (IPV4, IPV6):
            yield unsupported(path, family, (IPV4, IPV6))
        if family in seen:
            yield duplicate(path, family)
        seen.add(family)
    policy = spec.get("ipFamilyPolicy")
    if policy and policy not in POLICIES:
        yield unsupported("spec.ipFamilyPolicy", policy, POLICIES)


def _check_addresses(addresses: list[str]) -> Iterator[Cause]:
    for index, address in enumerate(addresses):
        if index == 0 and address == NONE:
            if len(addresses) > 1:
                yield invalid(
                    "spec.clusterIPs", addresses, "'None' must be the first and only value"
                )
        else:
            yield from each_invalid(f"spec.clusterIPs[{index}]", address, address_faults(address))


def _check_address_families(addresses: list[str], families: list[str]) -> Iterator[Cause]:
    """Check that two addresses have different families, and those in ``ipFamilies``."""
    if len(addresses) > 1 and len({family_of(address) for address in addresses}) < len(addresses):
        fault = "may specify no more than one IP for each IP family"
        yield invalid("spec.clusterIPs", addresses, fault)
    if addresses == [NONE]:
        return
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if family in (IPV4, IPV6) and family_of(address) != family:
            fault = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(f"spec.clusterIPs[{index}]", address, fault)


def change_causes(spec: Document, old: Document) -> Iterator[Cause]:
    """Check changes of addresses and families: the first of each is immutable.

    The second may be added and removed with ``ipFamilyPolicy``; a change from or to
    ``ExternalName`` is not restricted.
    """
    if is_external_name(spec) or is_external_name(old):
        return
    if is_headless(spec) and is_headless(old):
        return
    yield from _check_changes(spec, old, "clusterIPs", "clusterIP")
    if is_headless(spec) == is_headless(old):
        yield from _check_changes(spec, old, "ipFamilies", "ipFamily")


def _check_changes(spec: Document, old: Document, field: str, singular: str) -> Iterator[Cause]:
    new, old_values = spec.get(field) or [], old.get(field) or []
    immutable = "may not change once set"
    if len(new) == len(old_values):
        for index, (value, old_value) in enumerate(zip(new, old_values, strict=True)):
            if value != old_value:
                yield invalid(f"spec.{field}[{index}]", new, immutable)
        return
    if old_values and not new:
        yield invalid(f"spec.{field}[0]", new, f"primary {singular} can not be unset")
    elif old_values and new[0] != old_values[0]:
        yield invalid(f"spec.{field}[0]", new, immutable)
    policy = spec.get("ipFamilyPolicy")
    if len(new) == 1 and len(old_values) == 2 and policy != SINGLE_STACK:
        fault = f"must be set to 'SingleStack' when releasing the secondary {singular}"
        yield invalid("spec.ipFamilyPolicy", policy, fault)
