"""Plans how a changed template is rolled out. Pure but for the random order.

VirtualMachines are changed in place, all at once; their VMIs are recreated, limited by
``maxUnavailable``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from corral.api.kinds.kubevirt.pool import UpdateStrategy, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.availability import is_available, max_unavailable
from corral.controllers.pool.revisions import History, Step
from corral.controllers.pool.scale_plan import BURST, is_leaving
from corral.controllers.pool.selection import first, ordered, selected
from corral.reconcile.objects import is_being_deleted

VMIs = Mapping[str, VirtualMachineInstance]
"""VMIs by name, which is that of their VirtualMachine."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Next part of an update: VirtualMachines first, then their VMIs."""

    update: tuple[VirtualMachine, ...] = ()
    steps: tuple[tuple[VirtualMachine, Step], ...] = ()


def plan(
    pool: VirtualMachinePool,
    owned: Sequence[VirtualMachine],
    vmis: VMIs,
    history: History,
    rng: Random,
    *,
    burst: int = BURST,
) -> Rollout:
    """Return the next part of the update of a pool that has its desired size."""
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
        if (vmi := vmis.get(vm.metadata.name)) is not None
        and not is_being_deleted(vmi)
        and (step := history.step(vm, vmi)) is not Step.NOTHING
    }
    if not due:
        return Rollout()
    candidates = [vm for vm in chosen if vm.metadata.name in due]
    if strategy.proactive is not None:
        candidates = ordered(candidates, policy, rng)
    unavailable = sum(not is_available(vmis.get(vm.metadata.name)) for vm in owned)
    steps = _throttled(candidates, due, vmis, max_unavailable(pool) - unavailable)
    return Rollout(steps=tuple(steps[:burst]))


def _throttled(
    candidates: Sequence[VirtualMachine], due: Mapping[str, Step], vmis: VMIs, budget: int
) -> list[tuple[VirtualMachine, Step]]:
    """Return the steps that may be taken now; only those that reduce availability are limited.

    A VMI that is unavailable anyway is not waited for, and a label interrupts nothing.
    """
    free: list[tuple[VirtualMachine, Step]] = []
    limited: list[tuple[VirtualMachine, Step]] = []
    for vm in candidates:
        name = vm.metadata.name
        harmless = due[name] is Step.LABEL or not is_available(vmis.get(name))
        (free if harmless else limited).append((vm, due[name]))
    return free + limited[: max(budget, 0)]
