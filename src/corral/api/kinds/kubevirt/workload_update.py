"""The renewal of outdated VMIs: ``spec.workloadUpdateStrategy`` of the KubeVirt object."""

from typing import Any, Final

import msgspec

from corral.api.kinds.kubevirt.migration import WORKLOAD_UPDATE
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Struct
from corral.api.time import parse_duration

LIVE_MIGRATE, EVICT = "LiveMigrate", "Evict"
FIELDS: Final = frozenset({"workloadUpdateMethods", "batchEvictionSize", "batchEvictionInterval"})


class WorkloadUpdateStrategy(Struct, kw_only=True):
    """Methods and batches of the renewal of outdated VMIs.

    workload_update_methods: LiveMigrate, and Evict for VMIs that cannot migrate; none by default.
    batch_eviction_size: VMIs that are evicted at once.
    batch_eviction_interval: time between two such batches, such as 1m0s.
    """

    workload_update_methods: list[str] = []
    batch_eviction_size: int = 10
    batch_eviction_interval: str = "1m0s"

    @property
    def migrates(self) -> bool:
        """True if VMIs that can migrate do."""
        return LIVE_MIGRATE in self.workload_update_methods

    @property
    def evicts(self) -> bool:
        """True if VMIs that do not migrate are evicted."""
        return EVICT in self.workload_update_methods

    @property
    def interval_seconds(self) -> float:
        """Seconds between two batches of evictions."""
        return parse_duration(self.batch_eviction_interval)


def read(settings: Any) -> WorkloadUpdateStrategy:
    """Return the strategy, with KubeVirt's defaults.

    Raises ValueError, which names the setting, for an invalid one.
    """
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    try:
        strategy = msgspec.convert(given, WorkloadUpdateStrategy)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    for index, method in enumerate(strategy.workload_update_methods):
        if method not in (LIVE_MIGRATE, EVICT):
            supported = f'supported values: "{EVICT}", "{LIVE_MIGRATE}"'
            raise ValueError(f'workloadUpdateMethods[{index}]: "{method}": {supported}')
    if strategy.batch_eviction_size < 0:
        raise ValueError(f"batchEvictionSize: {strategy.batch_eviction_size} is less than 0")
    try:
        _ = strategy.interval_seconds
    except ValueError as error:
        raise ValueError(f"batchEvictionInterval: {error}") from None
    return strategy


def migration_of(vmi: VirtualMachineInstance, priority: str | None = None) -> Document:
    """Return a migration that renews the launcher of a VMI."""
    return {
        "metadata": {
            "generateName": "kubevirt-workload-update-",
            "namespace": vmi.metadata.namespace,
            "annotations": {WORKLOAD_UPDATE: ""},
        },
        "spec": {"vmiName": vmi.metadata.name, **({"priority": priority} if priority else {})},
    }
