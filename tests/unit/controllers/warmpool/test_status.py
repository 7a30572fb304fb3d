import msgspec
import pytest
from tests.unit.controllers.warmpool.test_checkpoint_plan import fork
from tests.unit.controllers.warmpool.test_plan import DIGEST, NOW, spare, warm_pool

from corral.api.errors import Forbidden
from corral.controllers.warmpool import status
from corral.controllers.warmpool.checkpoint_plan import CheckpointPlan
from corral.controllers.warmpool.plan import plan
from corral.controllers.warmpool.status import changed, reason
from corral.reconcile.start_backoff import Streak

TIME = "2026-01-01T00:00:00Z"


def decided(*spares, replicas=2, digest=DIGEST):
    return plan(warm_pool(replicas), spares, digest, NOW)


NO_TARGET = "spec.targetRef: x web does not exist: create it, or delete this warm pool"


def streak():
    return Streak("x", 0.0, uids={"1", "2", "3", "4"}, name="web4", reason="BootFailed")


@pytest.mark.parametrize(
    ("spares", "fields", "expected"),
    [
        ((spare("a"), spare("b")), {}, ("SparesReady", "2 of 2 spares are ready")),
        ((spare("a"),), {}, ("SparesStarting", "1 of 2 spares are ready")),
        (
            (spare("a"),),
            {"errors": [Forbidden("exceeded quota: small")]},
            ("FailedCreate", "exceeded quota: small"),
        ),
        (
            (spare("a"), spare("b"), spare("c")),
            {"errors": [Forbidden("not now")]},
            ("FailedDelete", "not now"),
        ),
        (
            (),
            {"streak": streak()},
            ("BackOff", status.backing_off(streak())),
        ),
        (
            (spare("a"), spare("b")),
            {"streak": streak()},
            ("SparesReady", "2 of 2 spares are ready"),
        ),
        (
            (),
            {"has_template": False},
            ("TargetNotFound", NO_TARGET),
        ),
    ],
)
def test_the_reason_says_what_keeps_the_pool_from_being_ready(spares, fields, expected):
    options = {"has_template": True, "errors": [], "streak": None} | fields
    why = reason(warm_pool(2), decided(*spares), **options)
    assert (why.reason, why.message) == expected
    assert why.is_ready is (expected[0] == "SparesReady")


def test_a_pool_waits_for_its_checkpoint_and_for_identities():
    options = {"has_template": True, "errors": [], "streak": None}
    pending = CheckpointPlan(boots=False, reason="SourceStarting", message="s boots")
    why = reason(warm_pool(2), decided(), **options, checkpoint=pending)
    assert why == ("CheckpointPending", "0 of 2 spares are ready: s boots")
    written = changed(warm_pool(2), decided(), why, claimed=0, now=TIME, checkpoint=pending)
    assert [(each["type"], each["status"], each["reason"]) for each in written["conditions"]] == [
        ("Ready", "False", "CheckpointPending"),
        ("CheckpointReady", "False", "SourceStarting"),
    ]
    shared = fork("f", "c", "IdentityShared")
    shared.status.conditions[-1].message = "no guest-exec"
    why = reason(warm_pool(2), decided(shared), **options, owned=[shared])
    assert why == ("IdentityShared", "0 of 2 spares are ready: no guest-exec")


def test_a_status_is_written_when_something_changes_alone():
    pool, present = warm_pool(2), decided(spare("a"), spare("b"))
    why = reason(pool, present, has_template=True, errors=[], streak=None)
    written = changed(pool, present, why, claimed=0, now="2026-01-01T00:00:00Z")
    assert written == {
        "replicas": 2,
        "readyReplicas": 2,
        "claimedReplicas": 0,
        "checkpoint": "",
        "labelSelector": "corral.dev/warm-pool=spares",
        "observedGeneration": 0,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "SparesReady",
                "message": "2 of 2 spares are ready",
            }
        ],
    }
    pool.status = msgspec.convert(written, type(pool.status))
    assert changed(pool, present, why, claimed=0, now="2026-01-01T00:00:09Z") is None
    assert changed(pool, present, why, claimed=1, now="2026-01-01T00:00:09Z") is not None


def test_the_message_of_a_back_off_names_the_last_spare():
    assert status.backing_off(streak()) == (
        "4 spares ended right after their start, the last was web4 (BootFailed): "
        "waiting longer and longer before the next is made"
    )


@pytest.mark.parametrize(
    ("checkpoint", "fields", "expected"),
    [
        (("SourceStarting", "s boots"), {}, ("CheckpointPending", "s boots")),
        (("Evicted", "c: no room"), {}, ("CheckpointPending", "c: no room")),
        (("NotSupported", "spec.targetRef: x"), {}, ("NotSupported", "spec.targetRef: x")),
        (("SourceStarting", "s"), {"streak": streak()}, ("BackOff", status.backing_off(streak()))),
        (("Complete", "c"), {}, ("SparesReady", "0 of 0 spares are ready")),
    ],
)
def test_a_pool_of_no_spares_is_ready_when_its_checkpoint_is(checkpoint, fields, expected):
    why, message = checkpoint
    options = {"has_template": True, "errors": [], "streak": None} | fields
    planned = CheckpointPlan(reason=why, message=message)
    found = reason(warm_pool(0), decided(replicas=0), **options, checkpoint=planned)
    assert found == expected


def test_a_checkpoint_that_a_quota_refuses_is_a_failed_creation():
    planned = CheckpointPlan(make=spare("s"), reason="SourceStarting")
    errors = [Forbidden("exceeded quota: small")]
    found = reason(
        warm_pool(0),
        decided(replicas=0),
        has_template=True,
        errors=errors,
        streak=None,
        checkpoint=planned,
    )
    assert found == ("FailedCreate", "exceeded quota: small")
