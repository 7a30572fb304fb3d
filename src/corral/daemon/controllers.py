"""The part of the composition that is the controllers: our own, and the stand-ins."""

from collections.abc import Callable
from functools import partial
from typing import Any

from corral import pki
from corral.cluster import (
    STAND_INS,
    cdi_config,
    certificates,
    service_account_tokens,
    service_accounts,
    system_config,
)
from corral.config import Layout, Settings
from corral.controllers import controllers as own_controllers
from corral.daemon.network import Networking
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
    stand_ins = (*STAND_INS, *_configured(settings, url), *network.stand_ins())
    return [*made, *(make(context) for make in stand_ins)]


def _configured(
    settings: Settings, url: str
) -> tuple[Callable[[ControllerContext], Controller[Any]], ...]:
    """The stand-ins that need to know the server's keys or address."""
    authority = settings.layout.authority.read_text
    return (
        service_accounts.controller(authority),
        certificates.signer(partial(pki.sign_request, settings.layout.pki)),
        service_account_tokens.controller(authority),
        system_config.controller(partial(_authorities, settings.layout)),
        cdi_config.controller(url, authority()),
    )


def _authorities(layout: Layout) -> tuple[str, str]:
    """Who certifies users, and who certifies what forwards requests in their names."""
    return layout.clients.read_text(), pki.front_proxy_authority(layout.pki)
