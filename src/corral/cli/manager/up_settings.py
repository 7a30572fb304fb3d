"""The manager's settings from the options of ``corral up``; rejects contradicting options."""

from pathlib import Path
from typing import Any

from corral import hosts
from corral.api.addresses import Network
from corral.api.time import parse_duration
from corral.cli import hints
from corral.cli.address_options import format_ranges, overlapping
from corral.cli.errors import Problem
from corral.cli.manager.eviction_options import eviction_hard
from corral.config import Hollow, Layout, Settings
from corral.daemon import address_ranges


def settings_of(layout: Layout, chosen: dict[str, Any]) -> Settings:
    """Return the settings from options by name.  Raises Problem."""
    address, port = chosen["bind"]
    ranges = _ranges(layout, chosen["pod_cidr"], chosen["service_cidr"])
    hollow = Hollow(
        boot_seconds=chosen["hollow_boot_seconds"],
        failure_rate=chosen["hollow_failure_rate"],
        seed=chosen["hollow_seed"],
    )
    return Settings(
        directory=layout.root,
        address=address,
        port=port,
        node_address="" if is_local(address) else address,
        nodes=chosen["nodes"],
        hollow=hollow if chosen["machine"] == "hollow" else None,
        boots=chosen["boots"],
        cpu_ratio=chosen["cpu_allocation_ratio"],
        controllers=chosen["controllers"],
        eviction_hard=eviction_hard(chosen["eviction_hard"], chosen["machine"]),
        pressure_seconds=parse_duration(chosen["pressure_period"]),
        overcommit_percent=chosen["overcommit_percent"],
        network=chosen["network"],
        network_backend=chosen["network_backend"],
        wireguard_port=chosen["wireguard_port"],
        cni_conf_dir=chosen["cni_conf_dir"].absolute(),
        cni_bin_dirs=chosen["cni_bin_dirs"],
        pod_cidrs=ranges.pods,
        service_cidrs=ranges.services,
        service_address=chosen["service_address"],
        kept_ports=chosen["kept_ports"],
        allowed_destinations=chosen["allowed_destinations"],
        host_disks=chosen["host_disks"].absolute() if chosen["host_disks"] else None,
        shared_storage=chosen["shared_storage"].absolute() if chosen["shared_storage"] else None,
        prometheus=_prometheus(chosen["prometheus"], chosen["metric_rules"]),
        metric_rules=chosen["metric_rules"],
        audit_log=_audit_log(chosen["audit_log"], chosen["audit_policy"]),
        audit_policy=chosen["audit_policy"],
        token_file=chosen["token_file"],
    )


def is_local(address: str) -> bool:
    """Report whether other hosts do not reach this one at an address that the API listens at."""
    return hosts.is_wildcard(address) or address == "localhost" or hosts.is_loopback(address)


def _audit_log(file: Path | None, policy: Path | None) -> Path | None:
    if policy is not None and file is None:
        raise Problem(
            f"{policy} is the policy of an audit log, but there is no audit log",
            "Name it with --audit-log FILE.",
        )
    return file.absolute() if file is not None else None


def _prometheus(url: str, rules: Path | None) -> str:
    if rules is not None and not url:
        raise Problem(
            f"the rules of {rules} are queries, but there is no Prometheus",
            "Name it with --prometheus URL.",
        )
    return url


def _ranges(
    layout: Layout, pods: tuple[Network, ...] | None, services: tuple[Network, ...] | None
) -> address_ranges.Ranges:
    """Return the requested ranges, else those that the data directory keeps.  Raises Problem."""
    stored = address_ranges.load(layout)
    ranges = address_ranges.chosen(stored, pods, services)
    if both := overlapping(ranges.pods, ranges.services):
        raise Problem(
            f"pods and Services cannot share addresses: {both} overlap",
            "Choose others with --pod-cidr and --service-cidr.",
        )
    if ranges == stored:
        return ranges
    if stored is not None and address_ranges.in_use(layout):
        in_use = f"{format_ranges(stored.pods)} and Services in {format_ranges(stored.services)}"
        raise Problem(
            f"machines that run have addresses in {in_use}",
            "Leave --pod-cidr and --service-cidr out to go on with these, or end them first: "
            f"{hints.command_line('down', layout)}",
        )
    address_ranges.save(layout, ranges)
    return ranges
