"""What a warm pool decides on the checkpoint of its spares."""

from datetime import timedelta

import msgspec
from tests.unit.controllers.warmpool.test_plan import DIGEST, NOW, spare, warm_pool

from corral.api.kinds.corral.checkpoint import EVICTED, VirtualMachineCheckpoint
from corral.api.kinds.corral.warm_pool import CHECKPOINT_SOURCE_LABEL, TEMPLATE_HASH_LABEL
from corral.api.kinds.vmi.saved_memory import START_FROM
from corral.api.object import Condition
from corral.controllers.warmpool.checkpoint_plan import (
    COMPLETE,
    IN_PROGRESS,
    RETRY_SECONDS,
    SOURCE_STARTING,
    plan_checkpoint,
)


def source(name="s", *, agent=True, ready=True, digest=DIGEST):
    vmi = spare(name, ready=ready)
    del vmi.metadata.labels[TEMPLATE_HASH_LABEL]
    vmi.metadata.labels[CHECKPOINT_SOURCE_LABEL] = digest
    if agent:
        vmi.status.conditions.append(Condition(type="AgentConnected", status="True"))
    return vmi


def fork(name, checkpoint, reason):
    vmi = spare(name)
    vmi.metadata.annotations[START_FROM] = checkpoint
    vmi.status.conditions.append(Condition(type="Forked", status="False", reason=reason))
    return vmi


def checkpoint(name="c", *, of="s", made="Ready", age=10, digest=DIGEST, node="node1"):
    conditions = [{"type": made, "status": "True", "reason": "NoSpace"}] if made else []
    created = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": created,
            "labels": {TEMPLATE_HASH_LABEL: digest},
        },
        "spec": {"source": {"name": of}},
        "status": {"nodeName": node, "conditions": conditions},
    }
    return msgspec.convert(document, VirtualMachineCheckpoint)


def decide(vmis=(), checkpoints=(), digest=DIGEST, down=(), *, short_of_disk=False, **spec):
    pool = warm_pool(2, **{"startFrom": "Checkpoint", **spec})
    return plan_checkpoint(
        pool,
        vmis,
        checkpoints,
        digest,
        NOW,
        forks=vmis,
        serves=lambda one: one not in down,
        has_disk_pressure=short_of_disk,
    )


def evicted(seconds_ago):
    """Return an old checkpoint that its node has removed for its space."""
    made = checkpoint(made="Failed", age=9999)
    (condition,) = made.status.conditions
    condition.reason = EVICTED
    moment = NOW - timedelta(seconds=seconds_ago)
    condition.last_transition_time = moment.isoformat().replace("+00:00", "Z")
    return made


def names(objects):
    return [each.metadata.name for each in objects]


def test_a_pool_without_checkpoint_needs_one_source():
    decided = decide()
    assert (decided.needs_source, decided.usable, decided.boots) == (True, None, False)
    assert not decide([source()]).needs_source


def test_a_checkpoint_is_made_of_a_source_that_is_ready_and_has_an_agent():
    for one in (source(agent=False), source(ready=False)):
        decided = decide([one])
        assert (decided.make, decided.reason) == (None, SOURCE_STARTING)
        assert decided.message.startswith("s boots")
    assert decide([source()]).make is not None
    assert decide([source()], [checkpoint(made="")]).make is None
    assert decide([source()], [checkpoint(made="")]).reason == IN_PROGRESS


def test_a_source_is_a_spare_once_its_checkpoint_is_complete_or_has_failed():
    for made in ("Ready", "Failed"):
        assert names(decide([source()], [checkpoint(made=made)]).release) == ["s"]
    decided = decide([source()], [checkpoint()])
    assert (decided.reason, decided.boots) == (COMPLETE, False)
    assert decided.usable.metadata.name == "c"


def test_spares_boot_for_a_while_after_a_failure():
    decided = decide((), [checkpoint(made="Failed")])
    assert (decided.boots, decided.needs_source, decided.delete) == (True, False, ())
    assert decided.reason == "NoSpace"
    assert decided.next_seconds == RETRY_SECONDS - 10
    later = decide((), [checkpoint(made="Failed", age=RETRY_SECONDS)])
    assert (later.boots, later.needs_source, names(later.delete)) == (False, True, ["c"])


def test_a_checkpoint_from_which_a_spare_could_not_start_is_not_used_again():
    decided = decide([fork("f", "c", "ForkFailed")], [checkpoint()])
    assert (decided.usable, decided.boots, decided.reason) == (None, True, "ForkFailed")
    others = [fork("f", "c", "ForkFailed")], [checkpoint(), checkpoint("d", age=5)]
    assert decide(*others).usable.metadata.name == "d"
    assert names(decide(*others).delete) == ["c"]
    assert decide([fork("f", "c", "IdentityPending")], [checkpoint()]).usable is not None


def test_a_checkpoint_that_was_removed_for_its_space_is_made_again_later():
    waits = decide((), [evicted(20)])
    assert (waits.reason, waits.needs_source, waits.delete) == (EVICTED, False, ())
    assert waits.next_seconds == RETRY_SECONDS - 20
    due = decide((), [evicted(RETRY_SECONDS)])
    assert (due.needs_source, names(due.delete)) == (True, ["c"])
    short = decide((), [evicted(RETRY_SECONDS)], short_of_disk=True)
    assert (short.needs_source, short.boots, short.reason) == (False, True, EVICTED)


def test_disk_pressure_keeps_no_checkpoint_from_being_used_or_renewed():
    assert decide((), [checkpoint()], short_of_disk=True).usable is not None
    assert decide(short_of_disk=True).needs_source


def test_a_complete_checkpoint_of_another_template_stays_until_there_is_one_of_this():
    old = checkpoint("old", digest="other")
    assert decide((), [old]).delete == ()
    assert names(decide((), [checkpoint("older", digest="x", age=99), old]).delete) == ["older"]
    assert names(decide((), [old, checkpoint()]).delete) == ["old"]


def test_a_checkpoint_whose_source_is_gone_is_deleted():
    assert names(decide((), [checkpoint(made="")]).delete) == ["c"]


def test_a_node_that_takes_no_machines_has_no_usable_checkpoint():
    decided = decide((), [checkpoint()], down=("node1",))
    assert (decided.usable, decided.needs_source, decided.delete) == (None, True, ())


def test_an_old_checkpoint_is_used_until_there_is_a_newer_one():
    decided = decide((), [checkpoint(age=70)], maxAge="60s")
    assert decided.needs_source
    assert decided.usable is not None
    assert decide((), [checkpoint(age=50)], maxAge="60s").next_seconds == 10
    failed = [checkpoint(age=70), checkpoint("d", made="Failed", age=5)]
    decided = decide((), failed, maxAge="60s")
    assert (decided.needs_source, decided.delete) == (False, ())


def test_a_pool_whose_spares_boot_has_no_checkpoint():
    decided = decide([source()], [checkpoint()], startFrom="Boot")
    assert names(decided.delete) == ["c"]
    assert names(decided.release) == ["s"]
    assert decided.reason == ""
    assert decide((), [checkpoint(), checkpoint("d", made="")], digest=None).usable is None
