"""The part of the composition that is the controllers: our own, and the stand-ins."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from corral import pki
from corral.api.kinds.auth.certificate_signing_request import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
)
from corral.cluster import (
    cdi_config,
    certificates,
    service_account_tokens,
    service_accounts,
    system_config,
)
from corral.config import Layout, Settings
from corral.controllers import controllers as own_controllers
from corral.daemon.network import Networking
from corral.daemon.stand_ins import STAND_INS
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
    factories = (*STAND_INS, *_configured(settings, url), *network.stand_ins())
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
