"""The part of the composition that is the controllers: our own, and the stand-ins."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any

from corral import pki
from corral.api.kinds.auth.certificate_signing_request import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
)
from corral.cluster import (
    builtin_services,
    cdi_config,
    certificates,
    control_plane_objects,
    node_ipam,
    service_account_tokens,
    service_accounts,
    service_ip_repair,
    system_config,
)
from corral.config import Layout, Settings
from corral.controllers import controllers as own_controllers
from corral.daemon.network import DNS_HOST, Networking
from corral.daemon.stand_ins import STAND_INS
from corral.node.network.machine_network import families
from corral.node.network.namespace_nft_rules import API_PORT
from corral.node.network.netlink import Address
from corral.node.status.node_status import host_address
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller


def controllers(
    settings: Settings,
    network: Networking,
    url: str,
    *,
    context: ControllerContext,
    own: ControllerContext,
) -> list[Controller[Any]]:
    """All that run where there are nodes; ``context`` is for the stand-ins, ``own`` for ours."""
    made = own_controllers(own, cpu_ratio=settings.cpu_ratio)
    return [*made, *stand_ins(settings, network, url, context)]


def stand_ins(
    settings: Settings, network: Networking, url: str, context: ControllerContext
) -> list[Controller[Any]]:
    """Return the controllers of Kubernetes itself; the data directory has the cluster's keys."""
    factories = (*STAND_INS, *_configured(settings, url), *_of_network(settings, network))
    return [make(context) for make in factories]


def _configured(
    settings: Settings, url: str
) -> tuple[Callable[[ControllerContext], Controller[Any]], ...]:
    """The stand-ins that need to know the server's keys or address."""
    layout, authority = settings.layout, settings.layout.authority.read_text
    sign_client = partial(pki.sign_request, layout.pki)
    signers = {
        CLIENT_SIGNER: sign_client,
        KUBELET_CLIENT_SIGNER: sign_client,
        KUBELET_SERVING_SIGNER: partial(pki.sign_serving_request, layout.pki),
    }
    contents = {
        system_config.AUTHENTICATION: partial(_authentication, layout),
        system_config.CLUSTER_INFO: partial(_cluster_info, url, authority),
        system_config.NETWORK: partial(_network, settings),
    }
    return (
        service_accounts.controller(authority),
        certificates.signer(signers),
        service_account_tokens.controller(authority),
        system_config.controller(contents),
        cdi_config.controller(url, authority()),
    )


def _of_network(
    settings: Settings, network: Networking
) -> tuple[Callable[[ControllerContext], Controller[Any]], ...]:
    """Return the controllers of pod CIDRs and of built-in Services."""
    versions = families()
    pods = [each for each in settings.pod_cidrs if each.version in versions]
    return (
        node_ipam.controller(settings.nodes, *pods),
        service_ip_repair.controller(
            *settings.service_cidrs,
            repaired=(builtin_services.KUBERNETES, builtin_services.DNS),
        ),
        builtin_services.controller(*_builtin_services(settings, network, pods[0][1])),
        control_plane_objects.controller(*network.service_ranges().networks),
    )


def _builtin_services(
    settings: Settings, network: Networking, gateway: Address
) -> Sequence[builtin_services.Builtin]:
    """Return the Services of the API and of DNS, which is served in the machine network only.

    Machines of CNI reach the API where other hosts do.
    """
    services = settings.service_cidrs[0]
    if network.uses_cni:
        host = ip_address(settings.node_address or host_address())
        return [builtin_services.kubernetes(services[1], host, settings.port)]
    return [
        builtin_services.kubernetes(services[1], gateway, API_PORT),
        builtin_services.dns(services[DNS_HOST], gateway),
    ]


def _authentication(layout: Layout) -> Mapping[str, str]:
    return system_config.authentication(
        layout.clients.read_text(), pki.front_proxy_authority(layout.pki)
    )


def _cluster_info(url: str, authority: Callable[[], str]) -> Mapping[str, str]:
    return {"kubeconfig": pki.cluster_info(url, authority()).decode()}


def _network(settings: Settings) -> Mapping[str, str]:
    return {
        "podCIDRs": ",".join(map(str, settings.pod_cidrs)),
        "serviceCIDRs": ",".join(map(str, settings.service_cidrs)),
        "backend": settings.network_backend if settings.network else "",
    }
