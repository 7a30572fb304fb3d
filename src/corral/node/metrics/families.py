"""Prometheus metric families of machines; names and labels are KubeVirt's."""

from collections.abc import Iterator, Mapping

from corral.api.kinds.vmi.live_update import current_memory
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.metrics import Family, counter, gauge
from corral.node.counters import Card, Counters, Disk, MigrationCounters
from corral.node.hypervisor import Usage

_NANO = 10**9
_GAUGES = {
    "memory_resident_bytes": "Memory that QEMU holds.",
    "memory_domain_bytes": "Memory that the guest was given.",
    "memory_actual_balloon_bytes": "Memory that the balloon leaves to the guest.",
    "migration_data_processed_bytes": "Bytes that a running migration has sent.",
    "migration_data_remaining_bytes": "Bytes that a running migration has still to send.",
    "migration_dirty_memory_rate_bytes": "Memory that a guest that migrates changes in a second.",
    "migration_memory_transfer_rate_bytes": "Memory that a running migration sends in a second.",
    "migration_last_downtime_seconds": "How long the latest migration has stopped the guest.",
}
_COUNTERS = {
    "migration_data_bytes_total": "Bytes that a running migration has to send in all.",
    "cpu_usage_seconds_total": "Processor time of QEMU, its guest's and its own.",
    "cpu_user_usage_seconds_total": "Processor time in user mode.",
    "cpu_system_usage_seconds_total": "Processor time in the kernel.",
    "vcpu_seconds_total": "How long each virtual processor has run.",
    "vcpu_delay_seconds_total": "How long each virtual processor has waited for a real one.",
    "storage_iops_read_total": "Reads from a disk.",
    "storage_iops_write_total": "Writes to a disk.",
    "storage_read_traffic_bytes_total": "Bytes read from a disk.",
    "storage_write_traffic_bytes_total": "Bytes written to a disk.",
    "storage_read_times_seconds_total": "Time spent on reads.",
    "storage_write_times_seconds_total": "Time spent on writes.",
    "storage_flush_requests_total": "Flushes of a disk.",
    "storage_flush_times_seconds_total": "Time spent on flushes.",
    "network_receive_bytes_total": "Bytes that came to a card.",
    "network_receive_packets_total": "Packets that came to a card.",
    "network_receive_errors_total": "Packets that could not be given to a card.",
    "network_receive_packets_dropped_total": "Packets to a card that were dropped.",
    "network_transmit_bytes_total": "Bytes that a card has sent.",
    "network_transmit_packets_total": "Packets that a card has sent.",
    "network_transmit_errors_total": "Packets of a card that could not be sent.",
    "network_transmit_packets_dropped_total": "Packets of a card that were dropped.",
}

Labels = Mapping[str, str]


class MachineFamilies:
    """The families of one scrape, to which each machine adds its samples."""

    def __init__(self) -> None:
        self._families = {name: gauge(_full(name), text) for name, text in _GAUGES.items()}
        self._families |= {name: counter(_full(name), text) for name, text in _COUNTERS.items()}

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def _add(self, name: str, value: float, labels: Labels) -> None:
        self._families[name].add(value, labels)

    def add_usage(self, labels: Labels, vmi: VirtualMachineInstance, usage: Usage) -> None:
        self._add("cpu_usage_seconds_total", usage.cpu_nanos / _NANO, labels)
        self._add("memory_resident_bytes", usage.memory_bytes, labels)
        self._add("memory_domain_bytes", current_memory(vmi).rounded_up(), labels)

    def add_counters(self, labels: Labels, counters: Counters) -> None:
        self._add("cpu_user_usage_seconds_total", counters.user_nanos / _NANO, labels)
        self._add("cpu_system_usage_seconds_total", counters.system_nanos / _NANO, labels)
        if counters.balloon_bytes is not None:
            self._add("memory_actual_balloon_bytes", counters.balloon_bytes, labels)
        for number, processor in counters.processors.items():
            extended = {**labels, "id": str(number)}
            self._add("vcpu_delay_seconds_total", processor.waited_nanos / _NANO, extended)
            extended["state"] = "running"
            self._add("vcpu_seconds_total", processor.ran_nanos / _NANO, extended)
        for volume, disk in counters.disks.items():
            self._add_disk({**labels, "drive": volume}, disk)

    def _add_disk(self, labels: Labels, disk: Disk) -> None:
        for name, flow in (("read", disk.reads), ("write", disk.writes)):
            self._add(f"storage_iops_{name}_total", flow.count, labels)
            self._add(f"storage_{name}_traffic_bytes_total", flow.bytes, labels)
            self._add(f"storage_{name}_times_seconds_total", flow.nanos / _NANO, labels)
        self._add("storage_flush_requests_total", disk.flushes.count, labels)
        self._add("storage_flush_times_seconds_total", disk.flushes.nanos / _NANO, labels)

    def add_migration(self, labels: Labels, counters: MigrationCounters) -> None:
        self._add("migration_data_bytes_total", counters.total, labels)
        self._add("migration_data_processed_bytes", counters.processed, labels)
        self._add("migration_data_remaining_bytes", counters.remaining, labels)
        self._add("migration_dirty_memory_rate_bytes", counters.dirty_rate, labels)
        self._add("migration_memory_transfer_rate_bytes", counters.transfer_rate, labels)

    def add_downtime(self, labels: Labels, seconds: float) -> None:
        self._add("migration_last_downtime_seconds", seconds, labels)

    def add_cards(self, labels: Labels, cards: Mapping[str, Card]) -> None:
        for interface, card in cards.items():
            extended = {**labels, "interface": interface}
            for name, flow in (("receive", card.received), ("transmit", card.sent)):
                self._add(f"network_{name}_bytes_total", flow.bytes, extended)
                self._add(f"network_{name}_packets_total", flow.count, extended)
                self._add(f"network_{name}_errors_total", flow.errors, extended)
                self._add(f"network_{name}_packets_dropped_total", flow.drops, extended)


def _full(name: str) -> str:
    return f"kubevirt_vmi_{name}"
