"""Joining a cluster as a node: the authority is pinned, certificates are asked for and renewed.

The steps are kubeadm's and the kubelet's TLS bootstrap: read kube-public/cluster-info without
trust, compare the authority's hash, ask for a client certificate with the bootstrap token, and for
a serving certificate with that.
"""

import asyncio
import base64
import json
import secrets
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from lightkube.models.certificates_v1 import CertificateSigningRequest
from lightkube.models.core_v1 import ConfigMap

from corral import files, pki
from corral.api.errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from corral.api.kinds.auth.certificate_signing_request import (
    DENIED,
    FAILED,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    NODE_GROUP,
    NODE_USER_PREFIX,
)
from corral.api.object import Key
from corral.client.client import Client
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig
from corral.client.retries import Retrying
from corral.cluster.system_config import AUTHENTICATION, CLUSTER_INFO, NETWORK
from corral.config import Layout
from corral.daemon.errors import CannotStart
from corral.reconcile.wait import wait_for

CERTIFICATE_SECONDS: Final = 60.0
"""Longest wait of a node for its certificate; approval by rule takes milliseconds."""
CLIENT: Final = "kubelet-client"
SERVING: Final = "kubelet"
SELF_SIGNED: Final = "kubelet-self-signed"
"""The names of a node's certificates."""
_CLIENT_USAGES: Final = ("digital signature", "key encipherment", "client auth")
_SERVING_USAGES: Final = ("digital signature", "key encipherment", "server auth")
log = structlog.get_logger()


class NetworkSettings(
    msgspec.Struct, frozen=True, rename={"pod_cidrs": "podCIDRs", "service_cidrs": "serviceCIDRs"}
):
    """The ranges that all nodes of a cluster share (kube-system/corral-network)."""

    pod_cidrs: str
    service_cidrs: str
    backend: str = ""


class Membership(msgspec.Struct, frozen=True):
    """The cluster of a data directory's node, as last observed: ``node.json``."""

    server: str
    name: str
    network: NetworkSettings

    @classmethod
    def load(cls, layout: Layout) -> "Membership | None":
        """Return what an earlier join has left; None where there was none."""
        return files.read_json(layout.membership, cls)

    def save(self, layout: Layout) -> None:
        """Write it; the node has joined from then on."""
        files.replace(layout.membership, msgspec.json.encode(self), durable=True)


async def join(layout: Layout, server: str, name: str, *, token: str, ca_hash: str) -> Membership:
    """Get a node its client certificate, and keep it.  Raises CannotStart with what to do."""
    authority = await _authority(server, ca_hash)
    config = Kubeconfig(server=server, authority=authority, token=token)
    try:
        await bootstrap(layout, config, name)
    except Unauthorized as error:
        raise CannotStart(
            f"{server} does not know the token, or the token has expired",
            "corral token create on the first host makes another one.",
        ) from error
    except ApiError as error:
        raise _refused(server, error) from error
    return await refresh(layout, server, name)


async def bootstrap(layout: Layout, config: Kubeconfig, name: str) -> None:
    """Get a client certificate as a kubeconfig's user, and keep it.

    Raises CannotStart and ApiError.
    """
    key, request = pki.new_request(f"{NODE_USER_PREFIX}{name}", (NODE_GROUP,))
    async with Https(config) as transport:
        certificate = await _certified(
            Client(Retrying(transport)), name, request, KUBELET_CLIENT_SIGNER, _CLIENT_USAGES
        )
    layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(layout.authority, config.authority.encode(), durable=True)
    write_pair(layout, CLIENT, key, certificate)


async def refresh(layout: Layout, server: str, name: str) -> Membership:
    """Read, and keep, what all nodes of the cluster share.  Raises CannotStart and ApiError."""
    async with Https(config_of(layout, server)) as transport:
        client = Client(transport)
        found = await client.get(ConfigMap, NETWORK.name, NETWORK.namespace)
        try:
            network = msgspec.convert(found.data, NetworkSettings)
        except msgspec.ValidationError as error:
            raise CannotStart(f"{NETWORK} cannot be read: {error}") from error
        await Credentials(layout, name).authorities(client)
    membership = Membership(server, name, network)
    membership.save(layout)
    return membership


def config_of(layout: Layout, server: str) -> Kubeconfig:
    """Return how a joined node reaches its API server, and what it shows.  Raises CannotStart."""
    try:
        return Kubeconfig(
            server=server,
            authority=layout.authority.read_text(),
            certificate=_path(layout, CLIENT, "crt").read_text(),
            key=_path(layout, CLIENT, "key").read_text(),
        )
    except FileNotFoundError as error:
        raise CannotStart(
            f"{error.filename} is missing",
            "Join again, with a token: corral token create --print-join-command.",
        ) from error


async def _authority(server: str, ca_hash: str) -> str:
    """Return the cluster's authority (PEM), that with the hash.  Raises CannotStart.

    cluster-info is read from a server that is not trusted yet: it may list others beside it.
    """
    try:
        async with Https(Kubeconfig(server=server, insecure=True)) as transport:
            info = await Client(transport).get(ConfigMap, CLUSTER_INFO.name, CLUSTER_INFO.namespace)
            require_clock(transport)
    except Unavailable as error:
        raise CannotStart(
            error.message,
            "Is the address right, and does corral up listen there (--bind)? Is the port open?",
        ) from error
    except ApiError as error:
        raise _refused(server, error) from error
    try:
        document: Any = json.loads((info.data or {})["kubeconfig"])  # corral's is JSON
        encoded = document["clusters"][0]["cluster"]["certificate-authority-data"]
        authority = base64.b64decode(encoded, validate=True).decode("ascii")
        pinned = pki.pinned_authorities(authority, ca_hash)
        found = pki.public_key_hash(authority)
    except (ValueError, LookupError, TypeError) as error:
        raise CannotStart(f"{CLUSTER_INFO} of {server} cannot be read: {error!r}") from error
    if not pinned:
        raise CannotStart(
            f"the authority of {server} has the hash {found}, not {ca_hash}",
            "Another may answer in its place. If not, corral token create --print-join-command "
            "on the first host prints the right hash.",
        )
    return pinned


def require_clock(transport: Https) -> None:
    """Raise CannotStart if this host's clock is so far off that certificates may fail.

    Members start all the same, as they have machines to adopt: their Node says it.
    """
    if difference := transport.clock.difference:
        raise CannotStart(
            f"the clock of this host is {difference} that of the API server",
            "Set it, for instance by NTP (timedatectl set-ntp true), and join again.",
        )


def _refused(server: str, error: ApiError) -> CannotStart:
    hint = "corral status on the first host shows the problem there."
    if isinstance(error, Forbidden | NotFound):
        hint = "Is it the API server of a corral that is as new as this one?"
    return CannotStart(f"{server} refuses: {error.message}", hint)


async def _certified(
    client: Client,
    node: str,
    request: bytes,
    signer: str,
    usages: Sequence[str],
    *,
    seconds: float = CERTIFICATE_SECONDS,
) -> bytes:
    """Return the certificate for a request once it is signed.  Raises CannotStart and ApiError."""
    name = f"node-csr-{node[:40]}-{secrets.token_hex(5)}"
    document = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": signer,
            "usages": list(usages),
        },
    }
    await client.create(CertificateSigningRequest, document)
    log.info("certificate requested", request=name, signer=signer)
    try:
        async with asyncio.timeout(seconds):
            made = await wait_for(client, CertificateSigningRequest, Key("", name), _is_decided)
    except TimeoutError:
        raise CannotStart(
            f"nobody has signed the certificate of node {node} for {seconds:.0f} s",
            f"An administrator may approve it: kubectl certificate approve {name}",
        ) from None
    status: Any = made.status
    for condition in status.conditions or ():
        if condition.type in (DENIED, FAILED):
            raise CannotStart(f"the certificate of node {node} was refused: {condition.message}")
    return base64.b64decode(status.certificate)


def _is_decided(request: CertificateSigningRequest) -> bool:
    status: Any = request.status
    if status is None:
        return False
    refused = any(each.type in (DENIED, FAILED) for each in status.conditions or ())
    return refused or bool(status.certificate)


class Credentials:
    """The certificates of a joined node."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._name = name

    serving_seconds: float = CERTIFICATE_SECONDS
    """Longest wait for the serving certificate before the node requests another one."""

    @property
    def clients(self) -> Path:
        """The authorities of the clients that this node accepts."""
        return self._layout.clients

    def provisional(self, hosts: Sequence[str]) -> tuple[Path, Path] | None:  # noqa: ARG002
        """Return a certificate and key to serve until one is signed; None to wait for that."""
        return None

    async def authorities(self, client: Client) -> None:
        """Keep the authorities of clients, as the API server has them now.  Raises ApiError."""
        found = await client.get(ConfigMap, AUTHENTICATION.name, AUTHENTICATION.namespace)
        if content := (found.data or {}).get("client-ca-file"):
            files.replace(self._layout.clients, content.encode(), durable=True)

    def served(self, hosts: Sequence[str]) -> tuple[Path, Path] | None:
        """Return the serving certificate for some hosts and its key, if there is a good one."""
        certificate, key = (_path(self._layout, SERVING, end) for end in ("crt", "key"))
        return (certificate, key) if _serves(certificate, hosts) else None

    async def serving(self, client: Client, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Return a new serving certificate for some hosts, and its key.

        Raises CannotStart and ApiError.
        """
        made, request = pki.new_request(f"{NODE_USER_PREFIX}{self._name}", (NODE_GROUP,), hosts)
        signed = await _certified(
            client,
            self._name,
            request,
            KUBELET_SERVING_SIGNER,
            _SERVING_USAGES,
            seconds=self.serving_seconds,
        )
        return write_pair(self._layout, SERVING, made, signed)

    async def renew(self, client: Client, tls: ssl.SSLContext) -> bool:
        """Renew the client certificate when a third of its time is left; ``tls`` shows it then."""
        if not _is_due(_path(self._layout, CLIENT, "crt")):
            return False
        name = self._name
        made, request = pki.new_request(f"{NODE_USER_PREFIX}{name}", (NODE_GROUP,))
        signed = await _certified(client, name, request, KUBELET_CLIENT_SIGNER, _CLIENT_USAGES)
        tls.load_cert_chain(*write_pair(self._layout, CLIENT, made, signed))
        return True


def certificate_of(layout: Layout, name: str) -> tuple[datetime, datetime] | None:
    """Return when the certificate CLIENT or SERVING begins and ends; None without one."""
    try:
        return pki.certificate_times(_path(layout, name, "crt").read_bytes())
    except FileNotFoundError:
        return None


def has_client_certificate(layout: Layout) -> bool:
    """Return whether there is a client certificate that has not ended."""
    times = certificate_of(layout, CLIENT)
    return times is not None and datetime.now(UTC) < times[1]


def _path(layout: Layout, name: str, end: str) -> Path:
    return layout.pki / f"{name}.{end}"


def write_pair(layout: Layout, name: str, key: bytes, certificate: bytes) -> tuple[Path, Path]:
    """Write a key and its certificate, and return the files of certificate and key.

    A crash between the two leaves no certificate.
    """
    certificate_path, key_path = _path(layout, name, "crt"), _path(layout, name, "key")
    certificate_path.unlink(missing_ok=True)
    files.replace(key_path, key, durable=True)
    files.replace(certificate_path, certificate, durable=True)
    return certificate_path, key_path


def _serves(certificate: Path, hosts: Sequence[str]) -> bool:
    try:
        content = certificate.read_bytes()
    except FileNotFoundError:
        return False
    return not _is_due(certificate) and set(hosts) <= set(pki.certificate_hosts(content))


def _is_due(certificate: Path) -> bool:
    """Report whether less than a third of a certificate's time is left."""
    times = pki.certificate_times(certificate.read_bytes())
    if times is None:
        return True
    begins, ends = times
    return datetime.now(UTC) > ends - (ends - begins) / 3


def forget(layout: Layout) -> None:
    """Remove what the cluster gave this host: the membership first, then certificates and keys.

    The options of the agent go, too: they are not those of another command.
    """
    layout.membership.unlink(missing_ok=True)
    for name in (CLIENT, SERVING, SELF_SIGNED):
        for end in ("crt", "key"):
            _path(layout, name, end).unlink(missing_ok=True)
    for path in (layout.authority, layout.clients, layout.options, layout.wireguard_key):
        path.unlink(missing_ok=True)
