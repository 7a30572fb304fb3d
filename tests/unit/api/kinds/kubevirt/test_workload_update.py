"""``workloadUpdateStrategy``: its defaults, and what is invalid."""

import pytest

from corral.api.kinds.kubevirt.workload_update import read


@pytest.mark.parametrize("given", [None, {}, {"batchEvictionSize": None}])
def test_by_default_nothing_is_renewed(given):
    strategy = read(given)
    assert not strategy.migrates
    assert not strategy.evicts
    assert (strategy.batch_eviction_size, strategy.interval_seconds) == (10, 60)


def test_a_strategy_is_read():
    strategy = read(
        {
            "workloadUpdateMethods": ["LiveMigrate", "Evict"],
            "batchEvictionSize": 3,
            "batchEvictionInterval": "1m30s",
        }
    )
    assert strategy.migrates
    assert strategy.evicts
    assert (strategy.batch_eviction_size, strategy.interval_seconds) == (3, 90)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"workloadUpdateMethods": ["Evict", "Restart"]},
            r'workloadUpdateMethods\[1\]: "Restart": supported values: "Evict", "LiveMigrate"',
        ),
        ({"workloadUpdateMethods": "Evict"}, "workloadUpdateMethods"),
        ({"batchEvictionSize": -1}, "batchEvictionSize: -1 is less than 0"),
        ({"batchEvictionSize": "ten"}, "batchEvictionSize"),
        ({"batchEvictionInterval": "soon"}, "batchEvictionInterval: 'soon' is no duration"),
    ],
)
def test_an_invalid_setting_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        read(given)
