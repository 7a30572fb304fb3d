"""Settings of migrations as they are stored."""

import msgspec
import pytest

from corral.api.kinds.vmi.migration_configuration import (
    DEFAULTS,
    MigrationConfiguration,
    merged,
    read,
)


def test_settings_replace_defaults_one_by_one():
    settings = merged(DEFAULTS, read({"bandwidthPerMigration": "64Mi", "allowPostCopy": True}))
    assert settings.bandwidth_per_migration == "64Mi"
    assert settings.allow_post_copy is True
    assert (settings.parallel_migrations_per_cluster, settings.progress_timeout) == (5, 150)
    assert merged(DEFAULTS, MigrationConfiguration()) == DEFAULTS
    assert merged(settings, read({"allowPostCopy": False})).allow_post_copy is False


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"parallelMigrationsPerCluster": -1}, "parallelMigrationsPerCluster: -1 is less than 0"),
        ({"maxDowntimeMs": 0}, "maxDowntimeMs: 0 is not between 1 and 2000000"),
        ({"completionTimeoutPerGiB": "soon"}, "completionTimeoutPerGiB"),
        ({"bandwidthPerMigration": "fast"}, "bandwidthPerMigration"),
        ({"progressTimeout": True}, "progressTimeout"),
        ("none", "object"),
    ],
)
def test_invalid_settings_are_refused_by_name(settings, fault):
    with pytest.raises(ValueError, match=fault):
        read(settings)


def test_absent_settings_are_none():
    assert read(None) == read({}) == MigrationConfiguration()
    nulls = {field.encode_name: None for field in msgspec.structs.fields(MigrationConfiguration)}
    assert read(nulls) == MigrationConfiguration()
