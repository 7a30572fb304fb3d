"""What a warm pool decides: in general (Hypothesis), then case by case."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, strategies as st
from tests.unit.controllers.make import make_vmi, replica_set

from corral.api.kinds.corral.spare_state import SPARE_STATE
from corral.api.kinds.corral.warm_pool import (
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.object import Condition
from corral.controllers.warmpool.plan import (
    AGED,
    FINISHED,
    LOST,
    NO_TARGET,
    OUTDATED,
    SURPLUS,
    new_spare,
    plan,
    switched,
)
from corral.reconcile.objects import is_being_deleted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIGEST = "0123456789"
UID = "pool-uid"


def warm_pool(replicas=3, **spec):
    metadata = {"name": "spares", "namespace": "default", "uid": UID}
    target = {"apiVersion": "v1", "kind": "x", "name": "web"}
    document = {"metadata": metadata, "spec": {"replicas": replicas, "targetRef": target, **spec}}
    return msgspec.convert(document, VirtualMachineWarmPool)


def spare(name="a", *, digest=DIGEST, ready=True, **fields):
    labels = {WARM_POOL_LABEL: "spares", TEMPLATE_HASH_LABEL: digest}
    vmi = make_vmi(name=name, ready=ready, labels=labels, node="node0", **fields)
    owner = {"apiVersion": "corral.dev/v1alpha1", "kind": "VirtualMachineWarmPool"}
    vmi.metadata.owner_references = msgspec.convert(
        [{**owner, "name": "spares", "uid": UID, "controller": True}],
        type=type(vmi.metadata).__annotations__["owner_references"],
    )
    return vmi


def leaving(decided):
    return {vmi.metadata.name: why for vmi, why in decided.delete}


@st.composite
def spares(draw):
    return [
        spare(
            f"m{number}",
            digest=draw(st.sampled_from([DIGEST, "other"])),
            ready=draw(st.booleans()),
            phase=draw(st.sampled_from(("Pending", "Running", "Failed", "Unknown"))),
            going=draw(st.booleans()),
            created=draw(st.integers(0, 3)),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


@given(
    spares(),
    st.integers(0, 8),
    st.sampled_from([DIGEST, None]),
    st.booleans(),
    st.sampled_from([None, "60s", "24h"]),
)
def test_a_plan_leaves_as_many_good_spares_as_desired(owned, replicas, digest, waits, age):
    pool = warm_pool(replicas, maxAge=age)
    decided = plan(pool, owned, digest, NOW + timedelta(hours=1), backing_off=waits)
    desired = replicas if digest else 0
    gone = leaving(decided)
    assert len(gone) == len(decided.delete)
    kept = [vmi for vmi in owned if vmi.metadata.name not in gone and not is_being_deleted(vmi)]
    assert all(vmi.metadata.labels[TEMPLATE_HASH_LABEL] == digest for vmi in kept)
    assert not any(vmi.status.phase in ("Failed", "Unknown") for vmi in kept)
    aged = [name for name, why in gone.items() if why == AGED]
    assert len(aged) <= 1
    total = len(kept) + decided.create
    surge = bool(age == "60s" and kept and desired)
    assert total <= desired + surge
    assert total >= desired or waits
    assert not (decided.create and SURPLUS in gone.values())
    assert decided.ready_replicas <= decided.replicas <= len(owned)


def test_why_a_spare_goes():
    owned = [
        spare("ended", phase="Succeeded"),
        spare("lost", pod_terminating=True),
        spare("old", digest="other"),
        spare("good"),
        spare("going", going=True),
    ]
    decided = plan(warm_pool(1), owned, DIGEST, NOW)
    assert leaving(decided) == {"ended": FINISHED, "lost": LOST, "old": OUTDATED}
    assert (decided.create, decided.ready_replicas) == (0, 1)


def test_without_its_target_all_spares_go_and_none_is_made():
    decided = plan(warm_pool(2), [spare("a"), spare("b")], None, NOW)
    assert leaving(decided) == {"a": NO_TARGET, "b": NO_TARGET}
    assert (decided.create, decided.desired) == (0, 0)


def test_of_too_many_the_one_that_is_not_ready_goes():
    decided = plan(warm_pool(1), [spare("a"), spare("b", ready=False)], DIGEST, NOW)
    assert leaving(decided) == {"b": SURPLUS}


def test_spares_that_are_too_old_go_one_at_a_time_once_another_is_ready():
    pool = warm_pool(2, maxAge="60s")
    old, older = spare("a", created=5), spare("b", created=1)
    decided = plan(pool, [old, older], DIGEST, NOW + timedelta(seconds=70))
    assert (decided.create, leaving(decided)) == (1, {})
    booting = [old, older, spare("c", ready=False, created=9)]
    decided = plan(pool, booting, DIGEST, NOW + timedelta(seconds=68))
    assert (decided.create, leaving(decided)) == (0, {})
    ready = [old, older, spare("c", created=9)]
    assert leaving(plan(pool, ready, DIGEST, NOW + timedelta(seconds=68))) == {"b": AGED}
    assert plan(pool, [old, older], DIGEST, NOW + timedelta(seconds=63)).next_seconds == 2.0
    assert plan(warm_pool(2), [old, older], DIGEST, NOW).next_seconds is None


def test_a_new_spare_has_none_of_the_labels_of_its_template():
    template = replica_set(labels={"app": "web"}).spec.template
    document = new_spare(warm_pool(), template, prefix="web", digest=DIGEST)
    assert document["metadata"]["labels"] == {
        WARM_POOL_LABEL: "spares",
        TEMPLATE_HASH_LABEL: DIGEST,
    }
    assert document["metadata"]["generateName"] == "web"
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("VirtualMachineWarmPool", UID)


def test_spares_are_paused_or_run_on_as_the_state_of_the_pool_says():
    pool, running = warm_pool(2, state="Paused"), warm_pool(2)
    template = replica_set().spec.template
    document = new_spare(pool, template, prefix="web", digest=DIGEST)
    assert document["metadata"]["annotations"] == {SPARE_STATE: "Paused"}
    assert (
        "annotations" not in new_spare(running, template, prefix="web", digest=DIGEST)["metadata"]
    )
    kept, other = paused_spare("a"), spare("b")
    assert plan(pool, [kept, other], DIGEST, NOW).switch == (other,)
    assert plan(running, [kept, other], DIGEST, NOW).switch == (kept,)
    for each in (pool, running):
        assert plan(each, [paused_spare("c", digest="other")], DIGEST, NOW).switch == ()
    assert switched(running, kept)["metadata"]["annotations"] == {SPARE_STATE: None}
    assert switched(pool, other)["metadata"]["annotations"] == {SPARE_STATE: "Paused"}


def test_a_spare_that_its_node_has_paused_may_be_handed_out_and_one_of_a_user_may_not():
    pool = warm_pool(2, state="Paused")
    theirs = paused_spare("b", reason="PausedByUser")
    decided = plan(pool, [paused_spare("a"), theirs], DIGEST, NOW)
    assert (decided.ready_replicas, decided.create, decided.delete) == (1, 0, ())


def paused_spare(name, *, reason="PausedAsSpare", digest=DIGEST):
    vmi = spare(name, digest=digest, ready=False, phase="Running")
    vmi.metadata.annotations[SPARE_STATE] = "Paused"
    vmi.status.conditions.append(Condition(type="Paused", status="True", reason=reason))
    return vmi
