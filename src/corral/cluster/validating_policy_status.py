"""Tells in the status of ValidatingAdmissionPolicies what their expressions have against types.

That is Kubernetes' validatingadmissionpolicy-status controller: it looks at each generation once.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from lightkube.models.admissionregistration_v1 import ValidatingAdmissionPolicy

from corral.api.errors import Conflict, NotFound, TooLarge
from corral.api.kinds.admissionregistration.type_checking import (
    kinds_to_check,
    params_schema,
    warnings,
)
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of, version_of
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that checks the types of policies."""
    loop = PolicyTypes(context)
    sources = (loop.policies, context.kinds)
    return Controller("policy-types", loop.reconcile, queue=loop.queue, sources=sources, workers=1)


class PolicyTypes:
    """The policies, and the kinds that they are about."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.policies = context.informers.of(ValidatingAdmissionPolicy)
        self._client = context.client
        self._kinds = context.kinds
        self.policies.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Tell what there is against one policy, if it changed since that was told."""
        policy = self.policies.get(key)
        if policy is None or not _is_new(policy):
            return
        spec: Document = msgspec.to_builtins(policy.spec) if policy.spec is not None else {}
        found: list[Document] = []
        kinds = self._kinds.table
        for some in warnings(spec, kinds_to_check(spec, kinds), params_schema(spec, kinds)):
            found += some
            await asyncio.sleep(0)  # a long policy lets others have their turn
        try:
            await self._tell(key, policy, found)
        except TooLarge:  # of a policy that has no room for all that is against it
            with suppress(TooLarge):
                await self._tell(key, policy, ())

    async def _tell(
        self, key: Key, policy: ValidatingAdmissionPolicy, found: Sequence[Document]
    ) -> None:
        """Raises TooLarge."""
        assert policy.metadata is not None
        status = {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": [*found] or None},
        }
        patch = {"metadata": {"resourceVersion": version_of(policy)}, "status": status}
        try:
            await self._client.patch(ValidatingAdmissionPolicy, key, patch, subresource="status")
        except (Conflict, NotFound):
            return  # the cache has yet to show what it is by now

    def _changed(
        self, _old: ValidatingAdmissionPolicy | None, new: ValidatingAdmissionPolicy | None
    ) -> None:
        if new is not None and _is_new(new):
            self.queue.add(key_of(new))


def _is_new(policy: ValidatingAdmissionPolicy) -> bool:
    """Whether nothing was told yet of what it says now."""
    generation = policy.metadata.generation if policy.metadata is not None else None
    told = policy.status.observedGeneration if policy.status is not None else None
    return (generation or 0) > (told or 0)
