"""What makes a migration and a policy valid."""

import pytest

from corral.api.kinds.kubevirt.migration_kinds import MIGRATION, MIGRATION_POLICY

CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
LABEL = "kubevirt.io/vmi-name"


def migration(labels=None, phase="", **spec):
    document = {"metadata": {"name": "move"}, "spec": {"vmiName": "vm", **spec}}
    if labels is not None:
        document["metadata"]["labels"] = labels
    return document | {"status": {"phase": phase}}


def messages(kind, document, old=None, user="alice"):
    return [cause.message for cause in kind.validate(document, old, user).causes]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vmiName": ""}, "vmiName is missing"),
        (
            {"priority": "system-critical"},
            "Migration priority queue, only virt-controller is allowed to set priority field",
        ),
        (
            {"sendTo": {"migrationID": "1"}},
            "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource",
        ),
    ],
)
def test_invalid_migrations_are_refused_in_kubevirts_words(spec, message):
    assert messages(MIGRATION, migration(**spec)) == [message]


def test_only_components_set_a_priority():
    assert messages(MIGRATION, migration(priority="system-critical"), user=CONTROLLER) == []
    (fault,) = messages(MIGRATION, migration(priority="high"), user=CONTROLLER)
    assert fault.startswith('spec.priority: Unsupported value: "high"')


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            migration({LABEL: "vm"}, vmiName="other"),
            "update of Migration object's spec is restricted",
        ),
        (migration(), "selector label can't be removed from an in-flight migration"),
        (migration({LABEL: "x"}), "selector label can't be modified on an in-flight migration"),
        (migration({}), "selector label can't be modified on an in-flight migration"),
    ],
)
def test_spec_and_label_of_a_migration_are_fixed(new, message):
    assert messages(MIGRATION, new, migration({LABEL: "vm"})) == [message]


def test_the_label_of_a_finished_migration_is_free():
    assert messages(MIGRATION, migration(phase="Failed"), migration({LABEL: "vm"})) == []


def test_a_new_migration_gets_label_and_finalizer():
    document = migration({"mine": "1"})
    MIGRATION.default_create(document)
    assert document["metadata"]["labels"] == {"mine": "1", LABEL: "vm"}
    assert document["metadata"]["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


def test_settings_of_a_policy_are_checked_and_those_without_effect_named():
    def document(**settings):
        return {"metadata": {"name": "slow"}, "spec": {"selectors": {}, **settings}}

    assert messages(MIGRATION_POLICY, document(maxDowntimeMs=0)) == [
        "spec: maxDowntimeMs: 0 is not between 1 and 2000000"
    ]
    verdict = MIGRATION_POLICY.validate(
        document(bandwidthPerMigration="64Mi", experimental={"compression": "zstd"}), None, "alice"
    )
    assert verdict.warnings == ["spec.experimental has no effect in this version"]
