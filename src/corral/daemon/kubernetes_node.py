"""Nodes of a Kubernetes cluster, whose API server keeps none of corral's ConfigMaps.

A node has its credentials by TLS bootstrap, as a kubelet has them, or from a kubeconfig of its own.
Its pod range is what kube-controller-manager writes into its Node; flags say the rest.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import structlog
from lightkube.models.authentication_v1 import SelfSubjectReview
from lightkube.models.core_v1 import Node

from corral import files, pki
from corral.api.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
    Unauthorized,
    Unavailable,
)
from corral.api.kinds.auth.certificate_signing_request import NODE_USER_PREFIX
from corral.api.object import Document, Key
from corral.client.client import Client
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig
from corral.client.retries import Retrying
from corral.config import CNI, Layout
from corral.daemon.errors import CannotStart
from corral.daemon.membership import (
    SELF_SIGNED,
    Credentials,
    Membership,
    NetworkSettings,
    bootstrap,
    config_of,
    forget,
    has_client_certificate,
    require_clock,
    write_pair,
)
from corral.node.status.node_status import RUNTIME
from corral.reconcile.wait import wait_for

RANGE_SECONDS: Final = 60.0
"""Longest wait of a node for its pod range."""
_DAY_SECONDS: Final = 86400.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """A node of a Kubernetes cluster, as its flags describe it.

    config: the API server and a user of it.
    bootstraps: whether that user only requests the node's certificate, else it is the node's.
    clients: the CA certificates (PEM) of the node's own clients; empty for the API server's.
    cluster_cidrs, service_cidrs: the ranges of all pods and of Services, separated by commas; all
    pods have those of this node if empty.
    backend: of BACKENDS.
    labels, taints, pod_cidrs: what the Node is created with.
    """

    config: Kubeconfig
    bootstraps: bool
    clients: str = ""
    cluster_cidrs: str = ""
    service_cidrs: str
    backend: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Document] = ()
    pod_cidrs: Sequence[str] = ()

    async def enter(self, layout: Layout, name: str) -> Membership:
        """Create the Node unless it exists, and return its membership.

        A node that was a member starts without its API server, too.  Raises CannotStart.
        """
        member = Membership.load(layout)
        if member is not None and member.name != name:
            raise CannotStart(
                f"{layout.root} is the data of node {member.name}",
                f"Name it with --name {member.name}, or choose another place with --data-dir.",
            )
        self._write_authorities(layout)
        try:
            ranges = await self._register(layout, name, is_member=member is not None)
        except Unavailable as error:
            if member is None or not (has_client_certificate(layout) or not self.bootstraps):
                raise CannotStart(error.message) from error
            log.warning("the API server is away", error=error.message)
            return member
        except ApiError as error:
            raise self._refused(name, error) from error
        pods = self.cluster_cidrs or ",".join(ranges)
        network = NetworkSettings(pods, self.service_cidrs, self.backend)
        membership = Membership(self.config.server, name, network)
        membership.save(layout)
        return membership

    def reached(self, layout: Layout) -> Kubeconfig:
        """Return how the node reaches its API server.  Raises CannotStart."""
        return config_of(layout, self.config.server) if self.bootstraps else self.config

    def credentials(self, layout: Layout, name: str) -> Credentials:
        """Return the node's certificates."""
        made = BootstrappedCredentials if self.bootstraps else GivenCredentials
        return made(layout, name, keeps_clients=bool(self.clients))

    def _write_authorities(self, layout: Layout) -> None:
        layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(layout.authority, self.config.authority.encode(), durable=True)
        if self.clients or not layout.clients.exists():
            clients = self.clients or self.config.authority
            files.replace(layout.clients, clients.encode(), durable=True)

    async def _register(self, layout: Layout, name: str, *, is_member: bool) -> Sequence[str]:
        """Return the pod ranges of the Node, which exists then.  Raises CannotStart, ApiError."""
        if self.bootstraps and not has_client_certificate(layout):
            await bootstrap(layout, self.config, name)
        async with Https(self.reached(layout)) as transport:
            client = Client(Retrying(transport))
            try:
                await _require_user(client, name)
                if not is_member:
                    require_clock(transport)
                node = await self._node(client, name)
                if not is_member:
                    _require_no_kubelet(node, name)
            except CannotStart:
                if not is_member:
                    forget(layout)  # its certificate is no use under another name
                raise
            await self.credentials(layout, name).authorities(client)
            # With CNI the plugins know the ranges; some clusters give their nodes none.
            return _ranges_of(node) if self.backend == CNI else await _ranges(client, name)

    def _refused(self, name: str, error: ApiError) -> CannotStart:
        server = self.config.server
        if isinstance(error, Unauthorized):
            return CannotStart(
                f"{server} does not know the user of the kubeconfig",
                "Its token or certificate may have expired, or be of another cluster.",
            )
        hint = "corral install gives nodes their rights." if isinstance(error, Forbidden) else ""
        return CannotStart(f"{server} refuses node {name}: {error.message}", hint)

    async def _node(self, client: Client, name: str) -> Node:
        """Return the Node, and create it if there is none.  Raises ApiError."""
        spec: Document = {"taints": list(self.taints)}
        if self.pod_cidrs:
            spec |= {"podCIDR": self.pod_cidrs[0], "podCIDRs": list(self.pod_cidrs)}
        metadata = {"name": name, "labels": dict(self.labels)}
        try:
            return await client.get(Node, name)
        except NotFound:
            try:
                return await client.create(Node, {"metadata": metadata, "spec": spec})
            except AlreadyExists:
                return await client.get(Node, name)


async def _require_user(client: Client, name: str) -> None:
    """Raise CannotStart if the client's user is not the node: it could not write VMIs' status."""
    review = await client.create(SelfSubjectReview, {"metadata": {}})
    status: Any = review.status
    user = (status and status.userInfo and status.userInfo.username) or ""
    if user != f"{NODE_USER_PREFIX}{name}":
        raise CannotStart(
            f"the kubeconfig's user is {user}, and that of this node is {NODE_USER_PREFIX}{name}",
            "--bootstrap-kubeconfig in place of --kubeconfig requests a certificate for the node.",
        )


def _require_no_kubelet(node: Node, name: str) -> None:
    """Raise CannotStart if the Node is that of a kubelet, whose status we would overwrite."""
    info = node.status.nodeInfo if node.status is not None else None
    runtime = info.containerRuntimeVersion if info is not None else ""
    if runtime and not runtime.startswith(RUNTIME):
        raise CannotStart(
            f"node {name} exists, and runs containers with {runtime}",
            f"Choose a name for the machines of this host, as in --name {name}-corral, and a "
            "--port that its kubelet does not have.",
        )


async def _ranges(client: Client, name: str) -> Sequence[str]:
    """Return the pod ranges of a Node as soon as it has some.  Raises CannotStart and ApiError."""
    try:
        async with asyncio.timeout(RANGE_SECONDS):
            node = await wait_for(client, Node, Key("", name), lambda node: bool(_ranges_of(node)))
    except TimeoutError:
        raise CannotStart(
            f"Node {name} has had no spec.podCIDRs for {RANGE_SECONDS:.0f} s",
            "kube-controller-manager writes them with --allocate-node-cidrs. Without it delete the "
            "Node, and name its range with --pod-cidr.",
        ) from None
    return _ranges_of(node)


def _ranges_of(node: Node) -> Sequence[str]:
    return (node.spec.podCIDRs if node.spec is not None else None) or ()


class BootstrappedCredentials(Credentials):
    """Certificates by TLS bootstrap.

    keeps_clients: whether the authorities of clients were given, and stay.

    A cluster may approve no serving certificates.  The node then serves a self-signed one, as a
    kubelet does, which kube-apiserver accepts unless it has --kubelet-certificate-authority.
    """

    serving_seconds = _DAY_SECONDS
    """kube-controller-manager deletes a request that is pending for longer."""

    def __init__(self, layout: Layout, name: str, *, keeps_clients: bool) -> None:
        super().__init__(layout, name)
        self._keeps_clients = keeps_clients

    def provisional(self, hosts: Sequence[str]) -> tuple[Path, Path] | None:
        """Return a new self-signed certificate for some hosts, and its key."""
        key, certificate = pki.self_signed(hosts)
        return write_pair(self._layout, SELF_SIGNED, key, certificate)

    async def authorities(self, client: Client) -> None:
        """Keep the authorities of clients, as the API server has them now.

        Where the node may not read them they stay as they are.  Raises ApiError.
        """
        if not self._keeps_clients:
            with suppress(Forbidden, NotFound):
                await super().authorities(client)


class GivenCredentials(BootstrappedCredentials):
    """The credentials of a kubeconfig of the node's own, which others renew."""

    async def renew(self, client: Client, tls: SSLContext) -> bool:  # noqa: ARG002
        """Return False."""
        return False
