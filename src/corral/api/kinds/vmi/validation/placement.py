"""Rules for names, probes, DNS, node selection and strategies."""

import ipaddress
from collections.abc import Iterable, Iterator

from lightkube.models.core_v1 import NodeSelectorTerm

from corral.api import grace_period
from corral.api.addresses import port_or_name_faults
from corral.api.errors import Cause
from corral.api.kinds.vmi.probes import Probe
from corral.api.kinds.vmi.vmi import Spec
from corral.api.metadata import check_labels
from corral.api.names import label_faults, subdomain_faults

DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", "")
EVICTIONS = (None, "None", "LiveMigrate", "LiveMigrateIfPossible", "External")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
MOST_NAMESERVERS = 3
MOST_SEARCHES = 6


def check_names(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that host name and subdomain are DNS names."""
    if spec.hostname and (faults := label_faults(spec.hostname)):
        field, reasons = f"{path}.hostname", ", ".join(faults)
        yield Cause(
            field, f"{field} does not conform to the kubernetes DNS_LABEL rules : {reasons}"
        )
    if spec.subdomain and (faults := subdomain_faults(spec.subdomain)):
        field, reasons = f"{path}.subdomain", ", ".join(faults)
        message = f"{field} does not conform to the kubernetes DNS_SUBDOMAIN rules : {reasons}"
        yield Cause(field, message)


def check_strategies(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that grace period, eviction strategy and start strategy are valid."""
    if fault := grace_period.fault(spec.termination_grace_period_seconds):
        field = f"{path}.terminationGracePeriodSeconds"
        yield Cause(field, f"{field} '{spec.termination_grace_period_seconds}': {fault}.")
    if spec.eviction_strategy not in EVICTIONS:
        field = f"{path}.evictionStrategy"
        message = f"{field} is set with an unrecognized option: {spec.eviction_strategy}"
        yield Cause(field, message)
    field = f"{path}.startStrategy"
    if spec.start_strategy not in (None, "Paused"):
        yield Cause(field, f"{field} is set with an unrecognized option: {spec.start_strategy}")
    elif spec.start_strategy and spec.liveness_probe is not None:
        message = "should be provided.Pausing VMI with LivenessProbe is not supported"
        yield Cause(field, f"either {field} or {path}.livenessProbe {message}")


def check_probes(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that A probe has one action; HTTP and TCP need the pod network."""
    devices = spec.domain.devices
    gets_pod_network = not spec.networks and not devices.interfaces
    has_pod_network = any(network.pod is not None for network in spec.networks) or (
        gets_pod_network and devices.autoattach_pod_interface is not False
    )
    for name, probe in (
        ("readinessProbe", spec.readiness_probe),
        ("livenessProbe", spec.liveness_probe),
    ):
        if probe is not None:
            yield from _check_probe(probe, f"{path}.{name}", has_pod_network=has_pod_network)
    if spec.liveness_probe is not None and spec.liveness_probe.success_threshold not in (0, 1):
        field = f"{path}.livenessProbe.successThreshold"
        yield Cause(field, f"{field} '{spec.liveness_probe.success_threshold}': must be 1")


def _check_probe(probe: Probe, here: str, *, has_pod_network: bool) -> Iterator[Cause]:
    actions = (probe.http_get, probe.tcp_socket, probe.exec, probe.guest_agent_ping)
    chosen = sum(action is not None for action in actions)
    if chosen > 1:
        yield Cause(here, f"{here} must have exactly one probe type set")
    if chosen < 1:
        message = f"either {here}.tcpSocket, {here}.exec or {here}.httpGet must be set if a {here}"
        yield Cause(here, f"{message} is specified", "FieldValueRequired")
    for name, action in (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket)):
        if action is not None and not has_pod_network:
            field = f"{here}.{name}"
            yield Cause(field, f"{field} is only allowed if the Pod Network is attached")
        if action is not None and (faults := port_or_name_faults(action.port)):
            field = f"{here}.{name}.port"
            yield Cause(field, f"{field} '{action.port}': {', '.join(faults)}")
    if probe.exec is not None and not probe.exec.command:
        field = f"{here}.exec.command"
        yield Cause(field, f"{field}: Required value", "FieldValueRequired")
    for name, value in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if value < 0:
            field = f"{here}.{name}"
            yield Cause(field, f"{field} '{value}': must be greater than or equal to 0.")


def check_dns(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that DNS policy and configuration are valid."""
    if spec.dns_policy not in DNS_POLICIES:
        allowed = " ".join(DNS_POLICIES)
        message = f"DNSPolicy: {spec.dns_policy} is not supported, valid values: [{allowed}]"
        yield Cause(f"{path}.dnsPolicy", message, "FieldValueNotSupported")
    here, config = f"{path}.dnsConfig", spec.dns_config
    servers = (config.nameservers if config else None) or []
    if spec.dns_policy == "None" and not servers:
        missing = "at least one DNS nameserver" if config else "`dnsConfig`"
        message = f"must provide {missing} when `dnsPolicy` is None"
        yield Cause(here, message, "FieldValueRequired")
    if len(servers) > MOST_NAMESERVERS:
        listed = " ".join(servers)
        message = f"must not have more than {MOST_NAMESERVERS} nameservers: [{listed}]"
        yield Cause(f"{here}.nameservers", message)
    for server in servers:
        if not _is_address(server):
            yield Cause(f"{here}.nameservers", f"must be valid IP address: {server}")
    searches = (config.searches if config else None) or []
    if len(searches) > MOST_SEARCHES:
        message = f"must not have more than {MOST_SEARCHES} search paths"
        yield Cause(f"{here}.searches", message)


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def check_node_choice(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that node selector, tolerations and node affinity are valid."""
    for cause in check_labels(spec.node_selector, f"{path}.nodeSelector"):
        yield Cause(cause.field, f"{cause.field}: {cause.message}")
    for index, toleration in enumerate(spec.tolerations):
        here = f"{path}.tolerations[{index}]"
        if toleration.operator not in (None, "", "Exists", "Equal"):
            message = f'Unsupported value: "{toleration.operator}": supported values: '
            yield Cause(f"{here}.operator", f'{here}.operator: {message}"Equal", "Exists"')
        if not toleration.key and toleration.operator != "Exists":
            message = 'operator must be Exists when `key` is empty, which means "match all values'
            yield Cause(f"{here}.operator", f'{here}.operator: {message} and all keys"')
    affinity = spec.affinity.nodeAffinity if spec.affinity else None
    if affinity is None:
        return
    here = f"{path}.affinity.nodeAffinity"
    if required := affinity.requiredDuringSchedulingIgnoredDuringExecution:
        field = f"{here}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not required.nodeSelectorTerms:
            message = "must have at least one node selector term"
            yield Cause(field, f"{field}: Required value: {message}", "FieldValueRequired")
        yield from _check_terms(required.nodeSelectorTerms, field)
    preferred = affinity.preferredDuringSchedulingIgnoredDuringExecution or []
    for index, term in enumerate(preferred):
        field = f"{here}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= term.weight <= 100:
            message = f"Invalid value: {term.weight}: must be in the range 1-100"
            yield Cause(f"{field}.weight", f"{field}.weight: {message}")
        yield from _check_expressions(term.preference, f"{field}.preference")


def _check_terms(terms: Iterable[NodeSelectorTerm], path: str) -> Iterator[Cause]:
    for index, term in enumerate(terms):
        yield from _check_expressions(term, f"{path}[{index}]")


def _check_expressions(term: NodeSelectorTerm, path: str) -> Iterator[Cause]:
    for part, requirements in (
        ("matchExpressions", term.matchExpressions),
        ("matchFields", term.matchFields),
    ):
        for index, requirement in enumerate(requirements or ()):
            here, operator = f"{path}.{part}[{index}]", requirement.operator
            values = requirement.values or []
            if operator not in OPERATORS:
                message = f'Invalid value: "{operator}": not a valid selector operator'
                yield Cause(f"{here}.operator", f"{here}.operator: {message}")
            elif operator in ("In", "NotIn") and not values:
                message = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
                yield Cause(f"{here}.values", f"{here}.values: {message}", "FieldValueRequired")
            elif operator in ("Exists", "DoesNotExist") and values:
                message = "Forbidden: may not be specified when `operator` is 'Exists' or "
                message += "'DoesNotExist'"
                yield Cause(f"{here}.values", f"{here}.values: {message}", "FieldValueForbidden")
            elif operator in ("Gt", "Lt") and len(values) != 1:
                message = "Required value: must be specified single value when `operator` is "
                message += "'Lt' or 'Gt'"
                yield Cause(f"{here}.values", f"{here}.values: {message}", "FieldValueRequired")


RULES = (check_names, check_strategies, check_probes, check_dns, check_node_choice)
