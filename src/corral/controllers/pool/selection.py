"""Which of a pool's VirtualMachines are chosen, and in what order.  Pure but for the dice."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from corral.api.kinds.kubevirt.pool import SelectionPolicy, Selectors
from corral.api.kinds.kubevirt.pool_validation import node_requirement
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.selectors import label_selector
from corral.controllers.pool.vm_names import ordinal

Order = Callable[[list[VirtualMachine]], None]


def ordered(
    vms: Iterable[VirtualMachine], policy: SelectionPolicy | None, dice: Random
) -> list[VirtualMachine]:
    """Those that the policy's selectors let through, in the order of its sort policy."""
    policy = policy or SelectionPolicy()
    chosen = selected(vms, policy.selectors)
    name = policy.sort_policy or "Random"
    if name == "Random":
        dice.shuffle(chosen)
        return chosen
    # By number first: machines of one second, and numbers that cannot be read, have an order too.
    chosen.sort(key=_number)
    if name in ("Newest", "Oldest"):
        chosen.sort(key=_age)
    if name in ("Newest", "DescendingOrder"):
        chosen.reverse()
    return chosen


def selected(vms: Iterable[VirtualMachine], selectors: Selectors | None) -> list[VirtualMachine]:
    """Those that meet the selectors, which look at what their machines are made of.

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
    """So many of them, or all where there are fewer."""
    return tuple(vms[: max(count, 0)])


def _number(vm: VirtualMachine) -> tuple[int, str]:
    return ordinal(vm.metadata.name), vm.metadata.name


def _age(vm: VirtualMachine) -> str:
    return vm.metadata.creation_timestamp or ""
