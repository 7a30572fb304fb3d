"""How a changed template reaches what is there.  Pure but for the dice.

VirtualMachines are changed in place, all at once; their machines are made anew, no more of them at
a time than may be unavailable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from corral.api.kinds.kubevirt.pool import UpdateStrategy, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.availability import is_available, most_unavailable
from corral.controllers.pool.revisions import History, Step
from corral.controllers.pool.scale_plan import BURST, is_leaving
from corral.controllers.pool.selection import first, ordered, selected
from corral.reconcile.objects import is_being_deleted

Machines = Mapping[str, VirtualMachineInstance]
"""Machines by name, which is that of their VirtualMachine."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is done next about an update: VirtualMachines first, then their machines."""

    update: tuple[VirtualMachine, ...] = ()
    steps: tuple[tuple[VirtualMachine, Step], ...] = ()


def plan(
    pool: VirtualMachinePool,
    owned: Sequence[VirtualMachine],
    machines: Machines,
    history: History,
    dice: Random,
    *,
    burst: int = BURST,
) -> Rollout:
    """What brings the VirtualMachines of a pool, which has its size, up to date."""
    strategy = pool.spec.update_strategy or UpdateStrategy()
    if strategy.unmanaged is not None:
        return Rollout()
    staying = [vm for vm in owned if not is_leaving(vm)]
    policy = strategy.proactive.selection_policy if strategy.proactive is not None else None
    chosen = selected(staying, policy.selectors if policy is not None else None)
    outdated = [vm for vm in chosen if history.is_outdated(vm)]
    if outdated:
        return Rollout(update=first(outdated, burst))
    if strategy.opportunistic is not None:
        return Rollout()
    due = {
        vm.metadata.name: step
        for vm in chosen
        if (machine := machines.get(vm.metadata.name)) is not None
        and not is_being_deleted(machine)
        and (step := history.step(vm, machine)) is not Step.NOTHING
    }
    if not due:
        return Rollout()
    walk = [vm for vm in chosen if vm.metadata.name in due]
    if strategy.proactive is not None:
        walk = ordered(walk, policy, dice)
    unavailable = sum(not is_available(machines.get(vm.metadata.name)) for vm in owned)
    steps = _throttled(walk, due, machines, most_unavailable(pool) - unavailable)
    return Rollout(steps=tuple(steps[:burst]))


def _throttled(
    walk: Sequence[VirtualMachine], due: Mapping[str, Step], machines: Machines, budget: int
) -> list[tuple[VirtualMachine, Step]]:
    """The steps that may be taken now: only those that take away what can serve are limited.

    A machine that cannot serve anyway is not waited for, and a label disturbs nobody.
    """
    free: list[tuple[VirtualMachine, Step]] = []
    limited: list[tuple[VirtualMachine, Step]] = []
    for vm in walk:
        name = vm.metadata.name
        harmless = due[name] is Step.LABEL or not is_available(machines.get(name))
        (free if harmless else limited).append((vm, due[name]))
    return free + limited[: max(budget, 0)]
