"""Rules for networks and the interfaces that join them."""

import ipaddress
import re
from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.vmi.networks import DhcpOptions, Interface, Port
from corral.api.kinds.vmi.vmi import Spec

MODELS = ("", "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")
RESERVED_MAC = "02:00:00:00:00:00"
"""The address of the bridge in KubeVirt's pods; a guest with the same would be unreachable."""
SMALLEST_RANGE = {4: 27, 6: 126}
"""Prefix length of the smallest private range by IP version: it has the gateway and the guest.

QEMU's user network, the fallback, needs the first 16 addresses of the IPv4 range.
"""
PRIVATE_OPTIONS = range(224, 255)
"""DHCP options for private use (RFC 3942)."""
MOST_ACPI_INDEX = 16 * 1024 - 1

_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(\1[0-9A-Fa-f]{2}){4}", re.ASCII)
_PORT_NAME = re.compile(r"(?=[a-z0-9-]*[a-z])[a-z0-9]([a-z0-9]|-(?!-))*(?<!-)", re.ASCII)


def check_networks(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that networks have one source and a unique name; at most one is the pod network."""
    seen: set[str] = set()
    for index, network in enumerate(spec.networks):
        here = f"{path}.networks[{index}]"
        sources = (network.pod, network.multus, network.resource_claim)
        count = sum(source is not None for source in sources)
        if count == 0:
            yield Cause(here, "should have a network type", "FieldValueRequired")
        elif count > 1:
            yield Cause(here, "should have only one network type", "FieldValueRequired")
        if network.name in seen:
            message = f'Network with name "{network.name}" already exists, every network must have '
            yield Cause(f"{here}.name", f"{message}a unique name", "FieldValueDuplicate")
        seen.add(network.name)
        if network.pod is not None:
            yield from _check_range(network.pod.vm_network_cidr, 4, f"{here}.pod.vmNetworkCIDR")
            range6 = network.pod.vm_ipv6_network_cidr
            yield from _check_range(range6, 6, f"{here}.pod.vmIPv6NetworkCIDR")
    if sum(network.pod is not None for network in spec.networks) > 1:
        field = f"{path}.interfaces"
        message = f"more than one interface is connected to a pod network in {field}"
        yield Cause(field, message, "FieldValueDuplicate")


def _check_range(cidr: str, version: int, field: str) -> Iterator[Cause]:
    if not cidr:
        return
    parse = ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network
    try:
        network = parse(cidr)
    except ValueError:
        yield Cause(field, f"{field} '{cidr}' is not a valid IPv{version} CIDR.")
        return
    if network.prefixlen > SMALLEST_RANGE[version]:
        smallest = f"/{SMALLEST_RANGE[version]} is the smallest range"
        yield Cause(field, f"{field} '{cidr}' is too small: {smallest}.")


def check_pairs(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that every network has one interface, every interface one network."""
    interfaces = [interface.name for interface in spec.domain.devices.interfaces]
    networks = {network.name for network in spec.networks}
    first = {name: index for index, name in reversed([*enumerate(interfaces)])}
    for index, network in enumerate(spec.networks):
        if network.name not in first:
            field = f"{path}.networks[{index}].name"
            yield Cause(field, f"{field} '{network.name}' not found.", "FieldValueRequired")
    for index, name in enumerate(interfaces):
        field = f"{path}.domain.devices.interfaces[{index}].name"
        if first[name] < index:
            message = "Only one interface can be connected to one specific network"
            yield Cause(field, message, "FieldValueDuplicate")
        if name not in networks:
            yield Cause(field, f"{field} '{name}' not found.")


def check_interfaces(spec: Spec, path: str) -> Iterator[Cause]:
    """Check the fields of each interface."""
    pods = {network.name for network in spec.networks if network.pod is not None}
    for index, interface in enumerate(spec.domain.devices.interfaces):
        here = f"{path}.domain.devices.interfaces[{index}]"
        yield from _check_interface(interface, here)
        yield from _check_binding(interface, here, on_pod_network=interface.name in pods)
        yield from _check_ports(interface.ports, f"{here}.ports")
        if interface.dhcp_options is not None:
            yield from _check_dhcp(interface.dhcp_options, f"{here}.dhcpOptions")


def _check_interface(interface: Interface, here: str) -> Iterator[Cause]:
    if not _NAME.fullmatch(interface.name):
        message = (
            "Network interface name can only contain alphabetical characters, numbers, dashes (-) "
            "or underscores (_)"
        )
        yield Cause(f"{here}.name", message)
    if interface.model not in MODELS:
        message = f"interface {here}.name uses model {interface.model} that is not supported."
        yield Cause(f"{here}.model", message, "FieldValueNotSupported")
    if interface.mac_address and not _MAC.fullmatch(interface.mac_address):
        message = f"interface {here}.name has malformed MAC address ({interface.mac_address})."
        yield Cause(f"{here}.macAddress", message)
    if not 0 <= interface.acpi_index <= MOST_ACPI_INDEX:
        message = f"{here}.acpiIndex '{interface.acpi_index}' must be between 1 and "
        yield Cause(f"{here}.acpiIndex", f"{message}{MOST_ACPI_INDEX}.")
    if interface.state not in ("", "up", "down", "absent"):
        message = f"logical {interface.name} interface state value is unsupported: "
        yield Cause(f"{here}.state", message + interface.state)


def _check_binding(interface: Interface, here: str, *, on_pod_network: bool) -> Iterator[Cause]:
    methods = (
        interface.bridge,
        interface.masquerade,
        interface.sriov,
        interface.passt_binding,
    )
    chosen = sum(method is not None for method in methods)
    if interface.binding is not None and chosen:
        message = "interface cannot have both binding plugin and interface binding method"
        yield Cause(f"{here}.binding", f"logical {interface.name} {message}")
    elif chosen > 1:
        message = "interface must have only one interface binding method"
        yield Cause(here, f"logical {interface.name} {message}")
    if interface.masquerade is not None and not on_pod_network:
        yield Cause(f"{here}.name", "Masquerade interface only implemented with pod network")
    if interface.masquerade is not None and _same_mac(interface.mac_address, RESERVED_MAC):
        message = "The requested MAC address is reserved for the in-pod bridge. "
        yield Cause(f"{here}.macAddress", message + "Please choose another one.")


def _same_mac(one: str, other: str) -> bool:
    return one.replace("-", ":").lower() == other


def _check_dhcp(options: DhcpOptions, here: str) -> Iterator[Cause]:
    numbers = [one.option for one in options.private_options]
    if len(set(numbers)) < len(numbers):
        message = "Found Duplicates: you have provided duplicate DHCPPrivateOptions"
        yield Cause(f"{here}.privateOptions", message)
    if any(number not in PRIVATE_OPTIONS for number in numbers):
        message = "provided DHCPPrivateOptions are out of range, must be in range 224 to 254"
        yield Cause(f"{here}.privateOptions", message)
    for index, server in enumerate(options.ntp_servers):
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            message = "NTP servers must be a list of valid IPv4 addresses."
            yield Cause(f"{here}.ntpServers[{index}]", message)


def _check_ports(ports: list[Port], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if port.name in names:
            message = f"Duplicate name of the port: {port.name}"
            yield Cause(f"{here}.name", message, "FieldValueDuplicate")
        if port.name:
            names.add(port.name)
            if len(port.name) > 15 or not _PORT_NAME.fullmatch(port.name):
                yield Cause(f"{here}.name", f"Invalid name of the port: {port.name}")
        if port.port == 0:
            yield Cause(here, "Port field is mandatory.", "FieldValueRequired")
        elif not 0 < port.port < 65536:
            yield Cause(here, "Port field must be in range 0 < x < 65536.")
        if port.protocol not in ("", "TCP", "UDP"):
            yield Cause(f"{here}.protocol", "Unknown protocol, only TCP or UDP allowed")


RULES = (check_networks, check_pairs, check_interfaces)
