"""Type-checks the expressions of ValidatingAdmissionPolicies, and writes warnings into the status.

As Kubernetes' validatingadmissionpolicy-status controller it checks each generation once.
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
    """Return the controller that type-checks policies."""
    loop = PolicyTypes(context)
    sources = (loop.policies, context.kinds)
    return Controller("policy-types", loop.reconcile, queue=loop.queue, sources=sources, workers=1)


class PolicyTypes:
    """Cache and kinds of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.policies = context.informers.of(ValidatingAdmissionPolicy)
        self._client = context.client
        self._kinds = context.kinds
        self.policies.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Type-check one policy whose generation is new."""
        policy = self.policies.get(key)
        if policy is None or not _is_outdated(policy):
            return
        spec: Document = msgspec.to_builtins(policy.spec) if policy.spec is not None else {}
        findings: list[Document] = []
        kinds = self._kinds.table
        for some in warnings(spec, kinds_to_check(spec, kinds), params_schema(spec, kinds)):
            findings += some
            await asyncio.sleep(0)  # a long policy lets others have their turn
        try:
            await self._update_status(key, policy, findings)
        except TooLarge:  # of a policy that has no room for all that is against it
            with suppress(TooLarge):
                await self._update_status(key, policy, ())

    async def _update_status(
        self, key: Key, policy: ValidatingAdmissionPolicy, findings: Sequence[Document]
    ) -> None:
        """Write the status. Raises TooLarge."""
        assert policy.metadata is not None
        status = {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": [*findings] or None},
        }
        patch = {"metadata": {"resourceVersion": version_of(policy)}, "status": status}
        try:
            await self._client.patch(ValidatingAdmissionPolicy, key, patch, subresource="status")
        except (Conflict, NotFound):
            return  # the cache has yet to show what it is by now

    def _changed(
        self, _old: ValidatingAdmissionPolicy | None, new: ValidatingAdmissionPolicy | None
    ) -> None:
        if new is not None and _is_outdated(new):
            self.queue.add(key_of(new))


def _is_outdated(policy: ValidatingAdmissionPolicy) -> bool:
    """Report whether the status lags behind the generation."""
    generation = policy.metadata.generation if policy.metadata is not None else None
    observed = policy.status.observedGeneration if policy.status is not None else None
    return (generation or 0) > (observed or 0)
