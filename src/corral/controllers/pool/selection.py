"""Selects and sorts VirtualMachines of a pool by a selection policy. Pure but for random order."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from corral.api.kinds.kubevirt.pool import SelectionPolicy, Selectors
from corral.api.kinds.kubevirt.pool_validation import node_requirement
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.selectors import label_selector
from corral.controllers.pool.vm_names import ordinal


def ordered(
    vms: Iterable[VirtualMachine], policy: SelectionPolicy | None, rng: Random
) -> list[VirtualMachine]:
    """Return the VirtualMachines that the policy selects, in its order."""
    policy = policy or SelectionPolicy()
    chosen = selected(vms, policy.selectors)
    name = policy.sort_policy or "Random"
    if name == "Random":
        rng.shuffle(chosen)
        return chosen
    # By number first: creation times have whole seconds, so that many VMs have the same.
    chosen.sort(key=_number)
    if name in ("Newest", "Oldest"):
        chosen.sort(key=_age)
    if name in ("Newest", "DescendingOrder"):
        chosen.reverse()
    return chosen


def selected(vms: Iterable[VirtualMachine], selectors: Selectors | None) -> list[VirtualMachine]:
    """Return the VirtualMachines whose templates match the selectors.

    Raises BadRequest for selectors that admission would have refused.
    """
    chosen = list(vms)
    if selectors is None:
        return chosen
    if selectors.label_selector is not None:
        document: Mapping[str, Any] = msgspec.to_builtins(selectors.label_selector)
        labels = label_selector(document)
        chosen = [vm for vm in chosen if labels.matches(vm.spec.template.metadata.labels)]
    if selectors.node_selector_requirement_matcher is not None:
        requirements = [
            node_requirement(msgspec.to_builtins(each))
            for each in selectors.node_selector_requirement_matcher
        ]
        chosen = [
            vm
            for vm in chosen
            if all(each.matches(vm.spec.template.spec.node_selector) for each in requirements)
        ]
    return chosen


def first(vms: Sequence[VirtualMachine], count: int) -> tuple[VirtualMachine, ...]:
    """Return the first ``count`` of them, or all where there are fewer."""
    return tuple(vms[: max(count, 0)])


def _number(vm: VirtualMachine) -> tuple[int, str]:
    return ordinal(vm.metadata.name), vm.metadata.name


def _age(vm: VirtualMachine) -> str:
    return vm.metadata.creation_timestamp or ""
