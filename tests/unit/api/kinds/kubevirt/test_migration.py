"""Which policy applies to a VMI, and what of it."""

import msgspec
import pytest

from corral.api.kinds.kubevirt.migration import (
    MigrationPolicy,
    VirtualMachineInstanceMigration,
    matching_policy,
)


def policy(name, vmi=None, namespace=None, **settings):
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": namespace}
    spec = {"selectors": {key: value for key, value in selectors.items() if value}, **settings}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, MigrationPolicy)


@pytest.mark.parametrize(
    ("policies", "chosen"),
    [
        ([], None),
        ([policy("a", {"app": "web"})], None),
        ([policy("a", {"app": "db"}, {"env": "test"})], None),
        ([policy("all")], "all"),
        ([policy("all"), policy("db", {"app": "db"})], "db"),
        ([policy("ns", namespace={"env": "prod"}), policy("db", {"app": "db"})], "db"),
        ([policy("b", {"app": "db"}), policy("a", {"app": "db"})], "a"),
        (
            [policy("db", {"app": "db"}), policy("z", {"app": "db"}, {"env": "prod"})],
            "z",
        ),
    ],
)
def test_the_policy_with_most_matching_labels_counts(policies, chosen):
    found = matching_policy(policies, {"app": "db", "tier": "1"}, {"env": "prod"})
    assert (found and found.metadata.name) == chosen


def test_post_copy_alone_allows_disruption_as_well():
    assert policy("a", allowPostCopy=True).spec.settings.allow_workload_disruption is True
    explicit = policy("a", allowPostCopy=True, allowWorkloadDisruption=False).spec.settings
    assert explicit.allow_workload_disruption is False
    assert policy("a").spec.settings.allow_workload_disruption is None


@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        ("system-critical", None),
        ("system-critical", "user-triggered"),
        (None, "system-maintenance"),
    ],
)
def test_priorities_are_ordered(higher, lower):
    def made(priority):
        document = {"spec": {"vmiName": "vm", "priority": priority}}
        return msgspec.convert(document, VirtualMachineInstanceMigration)

    assert made(higher).priority > made(lower).priority
