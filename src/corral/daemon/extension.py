"""Webhooks and the aggregated API beside controllers, as ``corral install`` announces them.

All processes serve them, the leader and others.
"""

import ssl
from typing import Self

import structlog
from lightkube.models.authentication_v1 import SelfSubjectReview
from lightkube.models.core_v1 import ConfigMap
from starlette.types import ASGIApp

from corral import pki
from corral.api.errors import NotFound
from corral.api.kinds import kind_of
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.controllers import serving_certificate
from corral.controllers.serving_certificate import Data
from corral.daemon.errors import CannotStart
from corral.reconcile.context import ControllerContext, wall_clock
from corral.reconcile.informer import Informer
from corral.server.extension.aggregated_api import AggregatedApi
from corral.server.extension.app import ExtensionApp
from corral.server.extension.front_proxy import CONFIG, FrontProxy
from corral.server.extension.proxied_nodes import ProxiedNodes
from corral.server.extension.webhooks import Webhooks
from corral.server.transport.listener import bare_context, trust_clients

log = structlog.get_logger()


class Extension:
    """The webhooks and the API of an installation in ``namespace``; ``tls`` serves them."""

    def __init__(
        self, client: Client, config: Kubeconfig, namespace: str, own: str, front_proxy: FrontProxy
    ) -> None:
        self.tls = bare_context()
        # A resumed session shows no authorities, by which ``FrontProxy`` trusts a client.
        self.tls.options |= ssl.OP_NO_TICKET
        self.tls.num_tickets = 0
        self.namespace = namespace
        self._client = client
        self._own = own
        self._front_proxy = front_proxy
        self._nodes = ProxiedNodes(config)
        self._trust()

    @classmethod
    async def open(cls, client: Client, config: Kubeconfig, namespace: str) -> Self:
        """Read what it needs from the API server.  Raises CannotStart and ApiError."""
        review = await client.create(SelfSubjectReview, {"metadata": {}})
        user = review.status and review.status.userInfo
        extension = cls(
            client,
            config,
            namespace,
            (user and user.username) or "",
            await _front_proxy(client),
        )
        try:
            extension._show(await serving_certificate.ensure(client, namespace))
        except NotFound as error:
            raise CannotStart(
                f"{error.message}: nothing is installed there",
                "corral install --print | kubectl apply -f - installs it; --install-namespace "
                "names another namespace.",
            ) from error
        return extension

    def app(self, health: ASGIApp) -> ASGIApp:
        """Return the app of all paths."""
        return ExtensionApp(
            webhooks=Webhooks(self._client, self._own, wall_clock),
            api=AggregatedApi(self._client, self._nodes, lambda: self._front_proxy),
            health=health,
        )

    async def run(self, context: ControllerContext) -> None:
        """Follow the certificate, and the configuration of the front proxy, until cancelled.

        The configuration is watched by its name: a role permits that alone.
        """
        serving_certificate.follow(context, self.namespace, self._show)
        proxies = Informer(
            self._client,
            ConfigMap,
            kind_of(ConfigMap),
            namespace=CONFIG.namespace,
            fields=f"metadata.name={CONFIG.name}",
        )
        proxies.handle(self._on_front_proxy)
        try:
            await proxies.run()
        finally:
            await self._nodes.aclose()

    def _on_front_proxy(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        """Trust the present front proxies alone; a deleted configuration comes back."""
        if new is None:
            return
        try:
            self._front_proxy = FrontProxy.of(new.data or {})
            self._trust()
        except (ValueError, ssl.SSLError) as error:
            log.warning("front proxies not trusted", configmap=str(CONFIG), error=str(error))

    def _trust(self) -> None:
        if self._front_proxy.authority:
            trust_clients(self.tls, self._front_proxy.authority)

    def _show(self, data: Data) -> None:
        """Serve with a certificate from now on; a damaged one is left to the leader."""
        shown = pki.Credentials(
            certificate=data.get(pki.CERTIFICATE, b""), key=data.get(pki.KEY, b"")
        )
        try:
            pki.load_credentials(self.tls, shown)
        except (OSError, ssl.SSLError) as error:
            log.warning("serving certificate not used", error=str(error))


async def _front_proxy(client: Client) -> FrontProxy:
    """Return the trusted front proxies; none where the API server has none.  Raises CannotStart."""
    try:
        found = await client.get(ConfigMap, CONFIG.name, CONFIG.namespace)
        return FrontProxy.of(found.data or {})
    except NotFound:
        return FrontProxy()
    except ValueError as error:
        raise CannotStart(f"ConfigMap {CONFIG}: {error}") from error
