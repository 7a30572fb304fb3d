"""Settings of live migrations (kubevirt.io/v1 MigrationConfiguration)."""

from typing import Any, Final

import msgspec

from corral.api.object import AnyFields, Quantity, Struct
from corral.api.quantity import parse

DRAIN_TAINT: Final = "kubevirt.io/drain"
PER_CLUSTER: Final = 5
PER_NODE: Final = 2
MAX_DOWNTIME_MS: Final = 900
MOST_DOWNTIME_MS: Final = 2_000_000
"""QEMU's own limit of ``downtime-limit``."""


class MigrationConfiguration(Struct, kw_only=True):
    """Settings of migrations; None leaves a setting to its default.

    node_drain_taint_key: key of the taint of nodes from which machines are to be evacuated.
    parallel_outbound_migrations_per_node: migrations away from one node at a time.
    parallel_migrations_per_cluster: migrations at a time.
    allow_auto_converge: whether a guest that changes its memory too fast is slowed down.
    bandwidth_per_migration: bytes per second; 0 for no limit.
    completion_timeout_per_gib: seconds per GiB of memory and of copied disks.
    max_downtime_ms: milliseconds for which the guest may stand still at the switch-over.
    progress_timeout: seconds without any progress after which a migration is cancelled.
    utility_volumes_timeout: seconds to wait for the removal of utility volumes.
    unsafe_migration_override: whether a migration starts that may harm the guest.
    allow_post_copy: whether the guest may go on at the target before all of its memory is there.
    allow_workload_disruption: whether a guest may be paused to end a migration that takes too long.
    disable_tls: whether memory is sent without encryption.
    network: the network over which memory is sent.
    match_selinux_level_on_migration: whether the target runs under the source's SELinux level.
    experimental: settings without a stable meaning.
    """

    node_drain_taint_key: str | None = None
    parallel_outbound_migrations_per_node: int | None = None
    parallel_migrations_per_cluster: int | None = None
    allow_auto_converge: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gib: int | None = msgspec.field(
        default=None, name="completionTimeoutPerGiB"
    )
    max_downtime_ms: int | None = None
    progress_timeout: int | None = None
    utility_volumes_timeout: int | None = None
    unsafe_migration_override: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    disable_tls: bool | None = msgspec.field(default=None, name="disableTLS")
    network: str | None = None
    match_selinux_level_on_migration: bool | None = msgspec.field(
        default=None, name="matchSELinuxLevelOnMigration"
    )
    experimental: AnyFields | None = None


DEFAULTS: Final = MigrationConfiguration(
    node_drain_taint_key=DRAIN_TAINT,
    parallel_outbound_migrations_per_node=PER_NODE,
    parallel_migrations_per_cluster=PER_CLUSTER,
    allow_auto_converge=False,
    bandwidth_per_migration="0",
    completion_timeout_per_gib=150,
    max_downtime_ms=MAX_DOWNTIME_MS,
    progress_timeout=150,
    utility_volumes_timeout=150,
    unsafe_migration_override=False,
    allow_post_copy=False,
    allow_workload_disruption=False,
    disable_tls=False,
)
"""KubeVirt's defaults (virt-config.go)."""

EFFECTIVE: Final = frozenset(
    {
        "nodeDrainTaintKey",
        "parallelOutboundMigrationsPerNode",
        "parallelMigrationsPerCluster",
        "allowAutoConverge",
        "bandwidthPerMigration",
        "completionTimeoutPerGiB",
        "maxDowntimeMs",
        "progressTimeout",
    }
)
"""Settings that have an effect; clients that set another one get a warning."""

_NOT_NEGATIVE: Final = (
    "parallelOutboundMigrationsPerNode",
    "parallelMigrationsPerCluster",
    "completionTimeoutPerGiB",
    "progressTimeout",
    "utilityVolumesTimeout",
)


def read(settings: Any) -> MigrationConfiguration:
    """Return settings as they are stored, without defaults.

    Raises ValueError, which names the setting, for an invalid one.
    """
    given = settings or {}
    try:
        read = msgspec.convert(given, MigrationConfiguration)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if read.bandwidth_per_migration is not None:
        try:
            _ = parse(read.bandwidth_per_migration)
        except ValueError as error:
            raise ValueError(f"bandwidthPerMigration: {error}") from None
    for name in _NOT_NEGATIVE:
        if (given.get(name) or 0) < 0:
            raise ValueError(f"{name}: {given[name]} is less than 0")
    downtime = read.max_downtime_ms
    if downtime is not None and not 1 <= downtime <= MOST_DOWNTIME_MS:
        raise ValueError(f"maxDowntimeMs: {downtime} is not between 1 and {MOST_DOWNTIME_MS}")
    return read


def merged(
    base: MigrationConfiguration, override: MigrationConfiguration
) -> MigrationConfiguration:
    """Return settings of which those that ``override`` has replace those of ``base``."""
    names = MigrationConfiguration.__struct_fields__
    given = {name: value for name in names if (value := getattr(override, name)) is not None}
    return msgspec.structs.replace(base, **given)
