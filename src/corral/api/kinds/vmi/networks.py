"""Networks of a VMI, and the interfaces that join them."""

import msgspec

from corral.api.object import Struct


class PodNetwork(Struct, kw_only=True):
    """The network that every machine has.

    vm_network_cidr: the guest's private range, 10.0.2.0/24 by default.
    vm_ipv6_network_cidr: the guest's private IPv6 range.
    """

    vm_network_cidr: str = msgspec.field(default="", name="vmNetworkCIDR")
    vm_ipv6_network_cidr: str = msgspec.field(default="", name="vmIPv6NetworkCIDR")


class MultusNetwork(Struct, kw_only=True):
    """A network that a NetworkAttachmentDefinition describes.

    network_name: NAME or NAMESPACE/NAME of the definition.
    default: whether it replaces the pod network.
    """

    network_name: str
    default: bool = False


class ResourceClaimNetwork(Struct, kw_only=True):
    """A network device that a ResourceClaim brings.

    claim_name: the claim among spec.resourceClaims.
    request_name: the request in that claim.
    """

    claim_name: str | None = None
    request_name: str | None = None


class Network(Struct, kw_only=True):
    """A network of the machine: a name and exactly one source.

    name: unique in the machine; the interface of the same name joins it.
    pod: the network that every machine has.
    multus: a network that a NetworkAttachmentDefinition describes.
    resource_claim: a network device that a ResourceClaim brings.
    """

    name: str
    pod: PodNetwork | None = None
    multus: MultusNetwork | None = None
    resource_claim: ResourceClaimNetwork | None = None


class Bridge(Struct, kw_only=True):
    """The guest takes the pod's own address."""


class Slirp(Struct, kw_only=True):
    """QEMU's user network; KubeVirt dropped it in 1.3."""


class Masquerade(Struct, kw_only=True):
    """The guest has a private address; traffic of the pod's address is translated to it."""


class Sriov(Struct, kw_only=True):
    """A virtual function of a network card is passed through."""


class Macvtap(Struct, kw_only=True):
    """The guest joins the node's network; KubeVirt dropped it in 1.3."""


class Passt(Struct, kw_only=True):
    """The guest's traffic goes through passt, without privileges."""


class PluginBinding(Struct, kw_only=True):
    """A binding that a plugin provides.

    name: the plugin, as the cluster's configuration calls it.
    """

    name: str


class Port(Struct, kw_only=True):
    """A port of the guest that is forwarded to it.

    name: name that services may use, unique in the machine.
    protocol: TCP, the default, or UDP.
    port: the number, 1 to 65535.
    """

    port: int
    name: str = ""
    protocol: str = ""


class DhcpPrivateOption(Struct, kw_only=True):
    """One more DHCP option.

    option: its number, 224 to 254.
    value: its value.
    """

    option: int
    value: str


class DhcpOptions(Struct, kw_only=True):
    """DHCP options for the guest beside its address.

    boot_file_name: option 67.
    tftp_server_name: option 66.
    ntp_servers: option 42.
    private_options: options 224 to 254.
    """

    boot_file_name: str = ""
    tftp_server_name: str = ""
    ntp_servers: list[str] = []
    private_options: list[DhcpPrivateOption] = []


class Interface(Struct, kw_only=True):
    """A network card of the guest: one network, one binding.

    name: the network that it joins.
    model: virtio (the default), e1000, e1000e, igb, ne2k_pci, pcnet or rtl8139.
    bridge: the guest takes the pod's own address.
    masquerade: the guest has a private address behind the pod's.
    sriov: a virtual function is passed through.
    slirp: QEMU's user network; KubeVirt dropped it.
    macvtap: the guest joins the node's network; KubeVirt dropped it.
    passt: the former spelling of passtBinding; KubeVirt dropped it.
    passt_binding: the guest's traffic goes through passt.
    binding: a binding that a plugin provides.
    ports: ports that are forwarded to the guest; all by default.
    mac_address: hardware address, e.g. de:ad:00:00:be:af; derived from the VMI by default.
    boot_order: place among the devices that firmware tries, from 1.
    pci_address: place on the guest's PCI bus.
    dhcp_options: DHCP options for the guest beside its address.
    tag: shown to the guest through the config drive.
    acpi_index: number from which the guest names the interface, 1 to 16383.
    state: up (the default), down or absent.
    """

    name: str
    model: str = ""
    bridge: Bridge | None = None
    masquerade: Masquerade | None = None
    sriov: Sriov | None = None
    slirp: Slirp | None = None
    macvtap: Macvtap | None = None
    passt: Passt | None = None
    passt_binding: Passt | None = None
    binding: PluginBinding | None = None
    ports: list[Port] = []
    mac_address: str = ""
    boot_order: int | None = None
    pci_address: str = ""
    dhcp_options: DhcpOptions | None = None
    tag: str = ""
    acpi_index: int = 0
    state: str = ""
