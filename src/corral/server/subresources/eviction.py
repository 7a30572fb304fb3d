"""Evictions: deletions of pods that PodDisruptionBudgets and KubeVirt's webhook may refuse.

``kubectl drain`` empties nodes with them.  A PodDisruptionBudget says how many of its pods may be
missing at once, and its controller how many more may be evicted; each eviction uses one of those.
The budget is read and staged without an ``await`` between, and written together with the pod, so
concurrent evictions cannot overdraw it.  Messages are those of Kubernetes (eviction.go).
"""

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from corral.api.conditions import get_condition, is_condition_true, set_condition
from corral.api.encoding import encode
from corral.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    Forbidden,
    TooManyRequests,
)
from corral.api.kind import at
from corral.api.kinds.pod_disruption_budget import (
    ALWAYS_ALLOW,
    DISRUPTION_ALLOWED,
    POD_DISRUPTION_BUDGET,
    SYNC_FAILED,
    disruption_conditions,
)
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.api.selectors import LabelSelector, label_selector
from corral.api.time import rfc3339
from corral.server.registry import delete
from corral.server.registry.rest import Rest
from corral.server.request import body, query
from corral.server.request.call import Call, json_response, storage
from corral.server.strategy import object_meta
from corral.server.subresources.kubevirt import evacuation
from corral.store import Record

KIND: Final = "Eviction"
VERSIONS: Final = ("policy/v1", "policy/v1beta1")
MAX_DISRUPTED_PODS: Final = 2000
"""Evictions of one budget that its controller may not have confirmed yet (MaxDisruptedPodSize)."""
RETRY_SECONDS: Final = 10
"""Retry-After where the budget's controller has not observed the newest spec."""
_NOT_SERVING = ("Pending", "Succeeded", "Failed")
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
_BUDGETS = storage(POD_DISRUPTION_BUDGET)
_SELECTORS: WeakKeyDictionary[Record, LabelSelector] = WeakKeyDictionary()
"""Parsed selectors by version of the budget; weak, so they go with the cached version."""


async def answer(rest: Rest, call: Call) -> Response:
    """Evict a pod.  Raises TooManyRequests where clients are to retry, Conflict and others."""
    eviction = body.read_as(call, VERSIONS[0], KIND)
    admitted = await rest.reviewers.admit_posted(call, eviction)
    options = _options(call, admitted)
    record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    pod = record.document()
    # First, as the preconditions may name another pod: then its VMI must not be marked.
    deletion = delete.plan_deletion(rest, call, record, options)
    denied = await evacuation.denial(rest, call, pod, admitted)
    if denied is not None:
        if not options.dry_run:
            await evacuation.store_marked(rest, call, denied.marked)
        raise denied.error()
    now = rfc3339(rest.now())
    budget = None if _is_over(pod) else _budget(rest, pod)
    if budget is not None:
        try:
            budget = spent(budget, pod, now)
        except TooManyRequests:
            marked = await evacuation.requested_replacement(rest, call, pod)
            if not options.dry_run:
                await evacuation.store_marked(rest, call, marked)
            raise
    if not options.dry_run:
        if deletion is not None:
            _mark(deletion, now)
        staged = [delete.stage_deletion(rest.store, record, deletion)]
        if budget is not None:
            staged.append(rest.store.write(_BUDGETS, _key(budget), budget))
        await asyncio.gather(*staged)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return json_response(encode({**status, "code": 201}), status=201)


def _options(call: Call, eviction: Document) -> delete.Options:
    """Return the Eviction's deleteOptions.  Raises BadRequest and Invalid."""
    version, kind = eviction.get("apiVersion"), eviction.get("kind")
    if version not in VERSIONS or kind != KIND:
        raise BadRequest(
            f"the body must be an Eviction of {' or '.join(VERSIONS)}: "
            f"the object provided is a {kind} of {version}"
        )
    if at(eviction, "metadata", "name") != call.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    if at(eviction, "metadata", "namespace") not in (None, "", call.namespace):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    return delete.parse_options(eviction.get("deleteOptions") or {}, call.query)


def _is_over(pod: Document) -> bool:
    """Return whether a pod has ended, has not begun or is being deleted: no budget counts it."""
    phase = at(pod, "status", "phase")
    return phase in _NOT_SERVING or bool(pod["metadata"].get("deletionTimestamp"))


def _budget(rest: Rest, pod: Document) -> Document | None:
    """Return the budget that selects a pod.  Raises ApiError where there are several."""
    metadata = pod["metadata"]
    found = []
    for committed in rest.store.objects(_BUDGETS, metadata["namespace"]):
        latest = rest.store.latest(_BUDGETS, committed.key)
        if latest is not None and _selector(latest).matches(metadata.get("labels")):
            found.append(latest.document())
    if len(found) > 1:
        raise ApiError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    return found[0] if found else None


def _selector(budget: Record) -> LabelSelector:
    """Return a budget's selector: parsed once per version, as many labels take 10 ms."""
    selector = _SELECTORS.get(budget)
    if selector is None:
        selector = label_selector(at(budget.document(), "spec", "selector"))
        _SELECTORS[budget] = selector
    return selector


def spent(budget: Document, pod: Document, now: str) -> Document | None:
    """Return the budget after an eviction of a pod; None for a pod that it does not count.

    Raises TooManyRequests and Forbidden where the budget allows no eviction.  Pure.
    """
    status = budget["status"] = budget.get("status") or {}
    if not is_condition_true(pod, "Ready") and _may_go_unready(budget):
        return None
    _require_synced(budget)
    if not status.get("disruptionsAllowed"):
        raise _refusal(_denied(budget))
    status["disruptionsAllowed"] -= 1
    if not status["disruptionsAllowed"]:
        status["conditions"] = disruption_conditions(status, now)
    status["disruptedPods"] = {
        **(status.get("disruptedPods") or {}),
        pod["metadata"]["name"]: now,
    }
    return budget


def _may_go_unready(budget: Document) -> bool:
    """Return whether pods that are not ready may be evicted without using up the budget."""
    if at(budget, "spec", "unhealthyPodEvictionPolicy") == ALWAYS_ALLOW:
        return True
    status = budget["status"]
    desired = status.get("desiredHealthy") or 0
    return 0 < desired <= (status.get("currentHealthy") or 0)


def _require_synced(budget: Document) -> None:
    """Raise TooManyRequests or Forbidden where the budget's controller has to sync first."""
    name, status = budget["metadata"]["name"], budget["status"]
    if (status.get("observedGeneration") or 0) < budget["metadata"]["generation"]:
        text = f"The disruption budget {name} is still being processed by the server."
        raise _refusal(text, RETRY_SECONDS)
    if len(status.get("disruptedPods") or ()) > MAX_DISRUPTED_PODS:
        raise Forbidden(
            f'poddisruptionbudget.policy "{name}" is forbidden: DisruptedPods map too big - too '
            "many evictions not confirmed by PDB controller",
            details=Details(name=name, group="policy", kind="poddisruptionbudget"),
        )


def _refusal(why: str, seconds: int = 0) -> TooManyRequests:
    cause = Cause("", why, "DisruptionBudget")
    details = Details(causes=[cause], retry_after_seconds=seconds)
    return TooManyRequests(_VIOLATION, details=details)


def _denied(budget: Document) -> str:
    """Return the message for a budget that allows no eviction now."""
    name, status = budget["metadata"]["name"], budget["status"]
    found = get_condition(status.get("conditions"), DISRUPTION_ALLOWED) or {}
    whole = f"The disruption budget {name}"
    why = found.get("message") if found.get("status") == "False" else ""
    if why and found.get("reason") == SYNC_FAILED:
        return f"{whole} does not allow evicting pods currently because it failed sync: {why}"
    desired, current = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    if current <= desired:
        return f"{whole} needs {desired} healthy pods and has {current} currently"
    if why:
        return f"{whole} does not allow evicting pods currently ({found['reason']}): {why}"
    return f"{whole} does not allow evicting pods currently"


def _mark(pod: Document, now: str) -> None:
    """Set the pod's condition DisruptionTarget."""
    status = pod["status"] = pod.get("status") or {}
    status["conditions"] = set_condition(
        status.get("conditions"),
        "DisruptionTarget",
        "True",
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
        now=now,
    )


def _key(document: Document) -> Key:
    return Key(document["metadata"]["namespace"], document["metadata"]["name"])
