"""Nodes of a Kubernetes cluster, whose API server keeps none of corral's ConfigMaps.

A node has its credentials from an administrator's kubeconfig, or by TLS bootstrap as a kubelet has
them.  Its pod range is what kube-controller-manager writes into its Node; flags say the rest.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from lightkube.models.core_v1 import Node

from corral import files, pki
from corral.api.errors import AlreadyExists, ApiError, NotFound, Unavailable
from corral.api.object import Document
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.client.transport import Https
from corral.config import Layout
from corral.daemon.errors import CannotStart
from corral.daemon.membership import (
    Credentials,
    Membership,
    NetworkSettings,
    bootstrap,
    config_of,
    write_serving_pair,
)

RANGE_SECONDS: Final = 60.0
"""How long a node waits for its pod range."""
_POLL_SECONDS: Final = 0.2
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """A node of a Kubernetes cluster, as its flags describe it.

    config: the API server, and who asks; bootstraps: whether that is only for a certificate;
    clients: the CA certificates (PEM) of those who may ask the node, the cluster's if empty;
    pod_cidrs: "" for those of the Node; service_cidrs: separated by commas; backend: vxlan or none;
    labels, taints: what the Node is created with.
    """

    config: Kubeconfig
    bootstraps: bool
    clients: str = ""
    pod_cidrs: str = ""
    service_cidrs: str
    backend: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Document] = ()

    async def enter(self, layout: Layout, name: str) -> Membership:
        """Register the Node and return its membership.

        A node that was a member starts without its API server, too.  Raises CannotStart.
        """
        known = Membership.load(layout)
        layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(layout.authority, self.config.authority.encode(), durable=True)
        clients = self.clients or self.config.authority
        files.replace(layout.clients, clients.encode(), durable=True)
        if self.bootstraps and known is None:
            await bootstrap(layout, self.config, name)
        try:
            async with Https(self.reached(layout)) as transport:
                ranges = self.pod_cidrs or ",".join(await self._ranges(Client(transport), name))
        except Unavailable as error:
            if known is None:
                raise CannotStart(error.message) from error
            log.warning("the API server is away", error=error.message)
            return known
        except ApiError as error:
            raise CannotStart(f"{self.config.server} refuses node {name}: {error}") from error
        network = NetworkSettings(ranges, self.service_cidrs, self.backend)
        membership = Membership(self.config.server, name, network)
        membership.save(layout)
        return membership

    def reached(self, layout: Layout) -> Kubeconfig:
        """Return how the node reaches its API server.  Raises CannotStart."""
        return config_of(layout, self.config.server) if self.bootstraps else self.config

    def credentials(self, layout: Layout, name: str) -> Credentials:
        """Return the node's certificates."""
        return BootstrappedCredentials(layout, name) if self.bootstraps else Given(layout, name)

    async def _ranges(self, client: Client, name: str) -> Sequence[str]:
        """Create the Node unless it is there, and return its pod ranges.

        Raises CannotStart and ApiError.
        """
        try:
            async with asyncio.timeout(RANGE_SECONDS):
                while True:
                    node = await self._node(client, name)
                    if node.spec is not None and node.spec.podCIDRs:
                        return node.spec.podCIDRs
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise CannotStart(
                f"Node {name} has had no spec.podCIDRs for {RANGE_SECONDS:.0f} s",
                "kube-controller-manager writes them with --allocate-node-cidrs; else name the "
                "range with --pod-cidr.",
            ) from None

    async def _node(self, client: Client, name: str) -> Node:
        try:
            return await client.get(Node, name)
        except NotFound:
            document: Document = {
                "metadata": {"name": name, "labels": dict(self.labels)},
                "spec": {"taints": list(self.taints)},
            }
            try:
                return await client.create(Node, document)
            except AlreadyExists:
                return await client.get(Node, name)


class BootstrappedCredentials(Credentials):
    """Certificates by TLS bootstrap; the authorities of clients are the flag's."""

    async def authorities(self, client: Client) -> None:
        """Keep the authorities as they are: nodes may not read the API server's."""


class Given(BootstrappedCredentials):
    """A kubeconfig's credentials; the serving certificate is self-signed, as a kubelet's own.

    kube-apiserver accepts it unless it has --kubelet-certificate-authority.
    """

    async def serving(self, client: Client, hosts: Sequence[str]) -> tuple[Path, Path]:  # noqa: ARG002
        """Issue a new serving certificate for some hosts, and return it with its key."""
        key, certificate = pki.self_signed(hosts)
        return write_serving_pair(self._layout, key, certificate)

    async def renew(self, client: Client, tls: ssl.SSLContext) -> bool:  # noqa: ARG002
        """Leave the client's credentials to whoever made the kubeconfig."""
        return False
