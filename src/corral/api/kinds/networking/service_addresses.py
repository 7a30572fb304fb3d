"""Addresses of services and their families: which go together, and which may change.

A service tells its first address twice, in ``clusterIP`` and in ``clusterIPs``, and the family of
each of them in ``ipFamilies``; ``ipFamilyPolicy`` says how many it shall have.
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
    """What is wrong in the addresses and families of one service."""
    if is_external_name(spec):
        return []
    addresses = spec.get("clusterIPs") or []
    causes = limited(chain(_first_differs(spec, addresses), _families(spec)))
    faulty = limited(_unreadable(addresses))
    causes += faulty
    if len(addresses) > 2:
        causes.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    if not faulty:
        causes += _mixed(addresses, spec.get("ipFamilies") or [])
    return causes


def _first_differs(spec: Document, addresses: list[str]) -> Iterator[Cause]:
    path, first = "spec.clusterIPs", spec.get("clusterIP")
    if not first:
        if addresses:
            yield invalid(path, addresses, "must be empty when `clusterIP` is not specified")
    elif not addresses:
        yield required(path)
    elif addresses[0] != first:
        yield invalid(path, addresses, "first value must match `clusterIP`")


def _families(spec: Document) -> Iterator[Cause]:
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


def _unreadable(addresses: list[str]) -> Iterator[Cause]:
    for index, address in enumerate(addresses):
        if index == 0 and address == NONE:
            if len(addresses) > 1:
                yield invalid(
                    "spec.clusterIPs", addresses, "'None' must be the first and only value"
                )
        else:
            yield from each_invalid(f"spec.clusterIPs[{index}]", address, address_faults(address))


def _mixed(addresses: list[str], families: list[str]) -> Iterator[Cause]:
    """Two addresses are of two families, and of those that the families say."""
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
    """What an update may not do to addresses and families: the first of them stay for ever.

    The second come and go with ``ipFamilyPolicy``; nothing is kept across ``ExternalName``.
    """
    if is_external_name(spec) or is_external_name(old):
        return
    if is_headless(spec) and is_headless(old):
        return
    yield from _changed(spec, old, "clusterIPs", "clusterIP")
    if is_headless(spec) == is_headless(old):
        yield from _changed(spec, old, "ipFamilies", "ipFamily")


def _changed(spec: Document, old: Document, field: str, one: str) -> Iterator[Cause]:
    new, known = spec.get(field) or [], old.get(field) or []
    once = "may not change once set"
    if len(new) == len(known):
        for index, (value, before) in enumerate(zip(new, known, strict=True)):
            if value != before:
                yield invalid(f"spec.{field}[{index}]", new, once)
        return
    if known and not new:
        yield invalid(f"spec.{field}[0]", new, f"primary {one} can not be unset")
    elif known and new[0] != known[0]:
        yield invalid(f"spec.{field}[0]", new, once)
    policy = spec.get("ipFamilyPolicy")
    if len(new) == 1 and len(known) == 2 and policy != SINGLE_STACK:
        fault = f"must be set to 'SingleStack' when releasing the secondary {one}"
        yield invalid("spec.ipFamilyPolicy", policy, fault)
