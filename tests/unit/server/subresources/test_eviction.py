"""Evictions as the server answers them: by budgets and by how pods are."""

import weakref

import pytest
from tests.unit.server.conftest import PODS
from tests.unit.server.subresources.evictions import (
    budget_status,
    evict,
    is_being_deleted,
    store_budget,
    store_pod,
)

from corral.api.object import Key
from corral.server.subresources import eviction
from corral.store import Record

VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
NO_EVICTION = (
    "the body must be an Eviction of policy/v1 or policy/v1beta1: the object provided "
    "is a Pod of v1"
)


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_a_pod_without_a_budget_is_deleted_gracefully(ask, version):
    await store_pod(ask)
    answer = await evict(ask, version=version)
    assert (answer.status, answer["status"], answer["code"]) == (201, "Success", 201)
    pod = await ask("GET", f"{PODS}/web")
    assert pod.metadata["deletionGracePeriodSeconds"] == 30
    (why,) = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (why["reason"], why["message"]) == ("EvictionByEvictionAPI", "Eviction API: evicting")


async def test_kind_and_version_of_an_eviction_are_optional(ask):
    await store_pod(ask)
    answer = await ask("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
    assert (answer.status, await is_being_deleted(ask)) == (201, True)


async def test_delete_options_of_the_eviction_are_used(ask):
    await store_pod(ask)
    await evict(ask, deleteOptions={"gracePeriodSeconds": 7})
    assert (await ask("GET", f"{PODS}/web")).metadata["deletionGracePeriodSeconds"] == 7
    await store_pod(ask, "other")
    assert (await evict(ask, "other", deleteOptions={"gracePeriodSeconds": 0})).status == 201
    assert (await ask("GET", f"{PODS}/other")).status == 404


async def test_evictions_use_up_the_budget(ask):
    for name in ("one", "two", "three"):
        await store_pod(ask, name)
    await store_budget(ask, 2)
    assert (await evict(ask, "one")).status == 201
    assert (await evict(ask, "two")).status == 201
    left = await budget_status(ask)
    assert left["disruptionsAllowed"] == 0
    assert left["disruptedPods"].keys() == {"one", "two"}
    (condition,) = left["conditions"]
    assert (
        condition.items()
        >= {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": 1,
        }.items()
    )
    refused = await evict(ask, "three")
    assert (refused.status, refused["reason"], refused["message"]) == (
        429,
        "TooManyRequests",
        VIOLATION,
    )
    assert not await is_being_deleted(ask, "three")


@pytest.mark.parametrize(
    ("condition", "counts", "why"),
    [
        ({}, (2, 2), "web needs 2 healthy pods and has 2 currently"),
        (
            {"reason": "SyncFailed", "message": "found no controllers"},
            (0, 0),
            (
                "web does not allow evicting pods currently because it failed sync: found no "
                "controllers"
            ),
        ),
        (
            {"reason": "Resting", "message": "not today"},
            (3, 2),
            "web does not allow evicting pods currently (Resting): not today",
        ),
        ({}, (3, 2), "web does not allow evicting pods currently"),
    ],
)
async def test_a_rejected_eviction_has_the_reason(ask, condition, counts, why):
    await store_pod(ask)
    conditions = (
        [{"type": "DisruptionAllowed", "status": "False", **condition}] if condition else []
    )
    current, desired = counts
    await store_budget(
        ask, 0, conditions=conditions, currentHealthy=current, desiredHealthy=desired
    )
    refused = await evict(ask)
    assert (refused.status, refused["message"]) == (429, VIOLATION)
    (cause,) = refused["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == f"The disruption budget {why}"
    assert "retry-after" not in refused.headers


async def test_a_changed_budget_must_be_synced_first(ask):
    await store_pod(ask)
    await store_budget(ask, 5, observedGeneration=0)
    refused = await evict(ask)
    assert (refused.status, refused["message"]) == (429, VIOLATION)
    assert refused["details"]["retryAfterSeconds"] == 10
    assert refused.headers["retry-after"] == "10"
    (cause,) = refused["details"]["causes"]
    assert cause["message"] == ("The disruption budget web is still being processed by the server.")


async def test_unprocessed_evictions_of_a_budget_are_limited(ask):
    await store_pod(ask)
    noted = {f"pod{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    await store_budget(ask, 1, disruptedPods=noted)
    refused = await evict(ask)
    assert (refused.status, refused["message"]) == (
        403,
        (
            'poddisruptionbudget.policy "web" is forbidden: DisruptedPods map too big - too many '
            "evictions not confirmed by PDB controller"
        ),
    )


async def test_a_pod_with_two_budgets_cannot_be_evicted(ask):
    await store_pod(ask)
    await store_budget(ask, 1)
    await store_budget(ask, 1, "too")
    refused = await evict(ask)
    assert (refused.status, refused["message"]) == (
        500,
        SEVERAL,
    )
    assert not await is_being_deleted(ask)
    assert (await budget_status(ask))["disruptionsAllowed"] == 1


@pytest.mark.parametrize("spec", [{"selector": None}, {"selector": {"matchLabels": {"app": "db"}}}])
async def test_budgets_of_other_pods_do_not_count(ask, spec):
    await store_pod(ask)
    await store_budget(ask, 0, spec=spec)
    assert (await evict(ask)).status == 201


async def test_a_changed_selector_of_a_budget_counts(ask):
    await store_pod(ask)
    await store_budget(ask, 0)
    assert (await evict(ask)).status == 429
    await store_budget(ask, 0, spec={"selector": {"matchLabels": {"app": "db"}}})
    assert (await evict(ask)).status == 201


async def test_an_empty_selector_matches_every_pod(ask):
    await store_pod(ask)
    await store_budget(ask, 0, spec={"selector": {}})
    assert (await evict(ask)).status == 429


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_finished_or_pending_pod_is_evicted_regardless_of_its_budget(ask, phase):
    await store_pod(ask, phase=phase)
    await store_budget(ask, 0)
    assert (await evict(ask)).status == 201
    assert (await budget_status(ask))["disruptionsAllowed"] == 0


async def test_a_terminating_pod_does_not_count_twice(ask):
    await store_pod(ask)
    await store_budget(ask, 2)
    assert (await evict(ask)).status == 201
    assert (await evict(ask)).status == 201
    assert (await budget_status(ask))["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("policy", "healthy", "code"),
    [
        (None, 2, 201),
        (None, 1, 429),
        ("IfHealthyBudget", 2, 201),
        ("IfHealthyBudget", 1, 429),
        ("AlwaysAllow", 2, 201),
        ("AlwaysAllow", 1, 201),
    ],
)
async def test_an_unready_pod_is_evicted_if_enough_others_are_healthy(ask, policy, healthy, code):
    await store_pod(ask, ready="False")
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    await store_budget(ask, 0, spec=spec, currentHealthy=healthy, desiredHealthy=2)
    assert (await evict(ask)).status == code
    assert "disruptedPods" not in await budget_status(ask)


async def test_a_dry_run_changes_nothing(ask):
    await store_pod(ask)
    await store_budget(ask, 1)
    before = await budget_status(ask)
    for how in ({"query": "?dryRun=All"}, {"deleteOptions": {"dryRun": ["All"]}}):
        assert (await evict(ask, **how)).status == 201
    assert not await is_being_deleted(ask)
    assert await budget_status(ask) == before
    await store_budget(ask, 0)
    assert (await evict(ask, query="?dryRun=All")).status == 429


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_failed_preconditions_evict_nothing_and_keep_the_budget(ask, precondition):
    await store_pod(ask)
    await store_budget(ask, 1)
    refused = await evict(ask, deleteOptions={"preconditions": precondition})
    assert (refused.status, refused["reason"]) == (409, "Conflict")
    assert (await budget_status(ask))["disruptionsAllowed"] == 1
    assert not await is_being_deleted(ask)


@pytest.mark.parametrize(
    ("eviction", "code", "message"),
    [
        (
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}},
            400,
            "name in URL does not match name in Eviction object",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}},
            400,
            NO_EVICTION,
        ),
        (
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web", "namespace": "elsewhere"},
            },
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web"},
                "deleteOptions": {"gracePeriodSeconds": "soon"},
            },
            400,
            (
                'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: json: '
                "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of "
                "type int64"
            ),
        ),
    ],
)
async def test_an_invalid_eviction_is_rejected(ask, eviction, code, message):
    await store_pod(ask)
    refused = await ask("POST", f"{PODS}/web/eviction", eviction)
    assert (refused.status, refused["message"]) == (code, message)
    assert not await is_being_deleted(ask)


async def test_a_missing_pod_is_not_found(ask):
    refused = await evict(ask)
    assert (refused.status, refused["message"]) == (404, 'pods "web" not found')
    assert (await ask("GET", f"{PODS}/web/eviction")).status == 405


async def test_evictions_need_the_right_to_create_them(ask):
    await store_pod(ask)
    refused = await evict(ask.as_user("somebody"))
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "pods/eviction"' in refused["message"]


@pytest.mark.parametrize("options", [[1], "x", 5, {"kind": "Pod"}])
async def test_invalid_delete_options_are_rejected(ask, options):
    await store_pod(ask)
    refused = await evict(ask, deleteOptions=options)
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert not await is_being_deleted(ask)


def test_parsed_budgets_are_cached_while_they_exist():
    budget = Record.of(
        kind="poddisruptionbudgets.policy",
        key=Key("default", "web"),
        revision=1,
        written=0,
        data=b'{"spec":{"selector":{"matchLabels":{"app":"web"}}}}',
        labels={},
    )
    selector = eviction._selector(budget)
    assert selector.matches({"app": "web"})
    assert eviction._selector(budget) is selector
    gone = weakref.ref(budget)
    del budget
    assert gone() is None
