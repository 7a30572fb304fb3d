"""Composes the API server: what it is opened from, and where it listens.

Its objects and keys come from the data directory, its users, metrics and audit log from options.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from ssl import SSLContext, create_default_context
from typing import Self

import structlog
from starlette.types import ASGIApp

from corral import pki
from corral.aio import Background
from corral.api.request import User
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.client.transport import InProcess
from corral.config import Layout, Settings
from corral.daemon.bootstrap import publish_upload_url
from corral.daemon.disk_reserve import Reserve
from corral.daemon.errors import CannotStart
from corral.daemon.host import Host
from corral.daemon.network import Networking, api_names
from corral.daemon.rbac.kubernetes import KUBELET_CLIENTS
from corral.metrics import Registry
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.audit import (
    DEFAULT,
    Audit,
    AuditError,
    Log,
    Policy,
    PolicyError,
    lost_events_line,
)
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.authn.token_file import TokenFileError, read_tokens
from corral.server.metrics.custom import Adapter, RulesError
from corral.server.node_proxy.remote_nodes import RemoteNodes
from corral.server.transport.listener import listening, tls_context
from corral.store import LogError, Store

DAY_SECONDS = 86400
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""User name of this server at nodes, as kubeadm has it."""
EVENT_SECONDS = 3600
"""Lifetime of events, as in Kubernetes."""
log = structlog.get_logger()


class Api:
    """The API server and what it is made from; ``store`` is to be closed in the end."""

    def __init__(
        self,
        settings: Settings,
        network: Networking,
        host: Host,
        *,
        metrics: Registry,
        identity: pki.Identity,
        store: Store,
        adapter: Adapter | None,
        audit: Audit | None,
        tokens: Mapping[str, User],
    ) -> None:
        self.store = store
        self._kubelet_client = tls = kubelet_client(settings.layout)
        self._remote_nodes = RemoteNodes(store, tls)
        self.server = ApiServer(
            store,
            authenticator=Authenticator({**tokens, identity.token: ADMINISTRATOR}),
            nodes=self._node,
            services=network.service_ranges(),
            account_key=identity.account_key,
            uploads=host.uploads,
            host=host.serve,
            metrics=metrics,
            adapter=adapter,
            audit=audit,
            observed=host.sampler.observed(),
            remote_nodes=self._remote_node,
        )
        self._settings = settings
        self._host = host
        self._network = network
        self._identity = identity
        self._adapter = adapter
        self._audit = audit

    @classmethod
    def open(
        cls,
        settings: Settings,
        network: Networking,
        host: Host,
        reserve: Reserve,
        metrics: Registry,
    ) -> Self:
        """Everything read, nothing served yet.  Raises CannotStart."""
        adapter, audit, tokens = _adapter(settings), _audit(settings), _tokens(settings)
        layout, lifetimes = settings.layout, {"events": EVENT_SECONDS}
        try:
            identity = pki.ensure(layout.pki, api_names(settings))
            store = Store.open(layout.store, lifetimes=lifetimes, make_room=reserve.give)
        except (pki.PkiError, LogError) as error:
            raise CannotStart(str(error)) from error
        return cls(
            settings,
            network,
            host,
            metrics=metrics,
            identity=identity,
            store=store,
            adapter=adapter,
            audit=audit,
            tokens=tokens,
        )

    def _node(self, name: str) -> ASGIApp | None:
        """Return the API of a node: of this process, else of another host; None without one."""
        return self._host.agent_app(name) or self._remote_nodes(name)

    def _remote_node(self, name: str) -> ASGIApp | None:
        """Return the kubelet of a node of another host; None for nodes of this process."""
        return None if self._host.agent_app(name) else self._remote_nodes(name)

    def reach(self, url: str) -> Kubeconfig:
        """Return how this server authenticates to a node of another host."""
        layout = self._settings.layout
        own = kubelet_credentials(layout)
        return Kubeconfig(
            server=url,
            authority=layout.authority.read_text(),
            certificate=own.certificate.decode(),
            key=own.key.decode(),
        )

    def client(self, user: User) -> Client:
        """A client in the name of a component of this process."""
        return Client(InProcess(self.server.handle, user))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str, None]:
        """Serve until the block ends: the URL.  Raises ServeError and ApiError."""
        settings, identity = self._settings, self._identity
        tls = tls_context(identity.certificate, identity.key, identity.clients)
        app = App(self.server)
        async with AsyncExitStack() as stack:
            if self._audit is not None:
                await stack.enter_async_context(aclosing(self._audit))
            host, port = await stack.enter_async_context(
                listening(app, settings.address, settings.port, tls)
            )
            await stack.enter_async_context(self._network.listening(app, tls))
            if self._adapter is not None:
                await stack.enter_async_context(aclosing(self._adapter))
            await stack.enter_async_context(aclosing(self.server.reviewers))
            await stack.enter_async_context(aclosing(self._remote_nodes))
            address = f"{f'[{host}]' if ':' in host else host}:{port}"
            self._write_kubeconfig(address)
            url = f"https://{address}"
            await publish_upload_url(self.server, url, settings.layout.authority.read_text())
            tasks = await stack.enter_async_context(Background())
            tasks.start(self.store.run(), name="store")
            tasks.start(self._renew(address, tls), name="certificates")
            yield url

    def _write_kubeconfig(self, address: str) -> None:
        pki.write_private(self._settings.layout.kubeconfig, pki.kubeconfig(self._identity, address))

    async def _renew(self, address: str, tls: SSLContext) -> None:
        """Keep the certificates young: a manager may run for longer than they last."""
        layout = self._settings.layout
        while True:
            await asyncio.sleep(DAY_SECONDS)
            try:
                if pki.renew(layout.pki, api_names(self._settings), tls):
                    self._write_kubeconfig(address)
                    pki.load_credentials(self._kubelet_client, kubelet_credentials(layout))
                    log.info("certificates renewed", kubeconfig=str(layout.kubeconfig))
            except (pki.PkiError, OSError) as error:
                log.warning("certificates not renewed", error=str(error))


def kubelet_credentials(layout: Layout) -> pki.Credentials:
    """Return the certificate by which this server asks nodes of other hosts."""
    lifetime = timedelta(days=pki.CLIENT_DAYS)
    return pki.credentials(layout.pki, KUBELET_CLIENT, (KUBELET_CLIENTS,), lifetime)


def kubelet_client(layout: Layout) -> SSLContext:
    """Return TLS that trusts the nodes of this cluster, and shows who asks."""
    context = create_default_context(cadata=layout.authority.read_text())
    pki.load_credentials(context, kubelet_credentials(layout))
    return context


def _adapter(settings: Settings) -> Adapter | None:
    """Return the adapter of a Prometheus' metrics, if there is one.  Raises CannotStart."""
    if not settings.prometheus:
        return None
    try:
        return Adapter.load(settings.prometheus, settings.metric_rules)
    except RulesError as error:
        hint = "docs/reference.md says what --metric-rules may hold."
        raise CannotStart(str(error), hint) from error


def _tokens(settings: Settings) -> Mapping[str, User]:
    """Further users by their tokens.  Raises CannotStart."""
    if settings.token_file is None:
        return {}
    try:
        return read_tokens(settings.token_file)
    except TokenFileError as error:
        raise CannotStart(
            str(error), "docs/reference.md says what --token-file may hold."
        ) from error


def _audit(settings: Settings) -> Audit | None:
    """Return the audit log of the options, if any.  Raises CannotStart."""
    if settings.audit_log is None:
        return None
    try:
        policy = Policy.read(settings.audit_policy) if settings.audit_policy else DEFAULT
        file = Log(settings.audit_log, lost_events_line)
        return Audit(policy, file, components=settings.audit_policy is not None)
    except (PolicyError, AuditError) as error:
        hint = "docs/guide/users.md (Who did what) says what --audit-log and --audit-policy need."
        raise CannotStart(str(error), hint) from error
