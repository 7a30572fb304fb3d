"""Labels that metrics of VirtualMachines and VMIs share (KubeVirt's vmistats_collector.go)."""

from collections.abc import Mapping

from corral.api.kinds.vmi.networks import Interface, Network

_SYSTEM = ("os", "workload", "flavor")
_POD_NETWORK = "pod networking"
_NONE = "<none>"


def system(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the labels about the guest system, from annotations."""
    return {name: annotations.get(f"vm.kubevirt.io/{name}", "") for name in _SYSTEM}


def vnic(interface: Interface, networks: list[Network]) -> dict[str, str] | None:
    """Return the labels of a network interface; None if it belongs to no network."""
    network = next((one for one in networks if one.name == interface.name), None)
    if network is None:
        return None
    binding_type, binding = _binding(interface)
    return {
        "vnic_name": interface.name,
        "binding_type": binding_type,
        "network": network.multus.network_name if network.multus else _POD_NETWORK,
        "binding_name": binding,
        "model": interface.model or _NONE,
    }


def _binding(interface: Interface) -> tuple[str, str]:
    for name in ("masquerade", "bridge", "sriov"):
        if getattr(interface, name) is not None:
            return "core", name
    return ("plugin", interface.binding.name) if interface.binding is not None else ("", "")
