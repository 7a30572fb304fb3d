"""The hosts that may have an image, in the order in which they are asked for it.

The first host is asked through its API server, as it has most imports.  The images of the others
are those that their Nodes name (``status.images``, as a kubelet's): they are asked at the nodes'
own port.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final

from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_addresses import by_age, internal_ips, kubelet_port
from corral.api.kinds.core.node_taints import ready_status
from corral.api.kinds.storage.common import SHARED_LABEL, STORAGE_LABEL
from corral.client.kubeconfig import Kubeconfig
from corral.node.images.peer import Peer
from corral.reconcile.objects import key_of, labels_of

MAX_ASKED: Final = 3
"""Nodes that are asked for one image: those that have pulled it may be many."""

Download = AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]


class Peers:
    """Finds the peers that may have an image, by the cached Nodes of the cluster.

    ``own`` reports whether a node is on this host; ``reach`` returns how this host authenticates
    to a URL, and which authority it trusts there, ``user`` as whom; ``first`` is the first host,
    unless this is it, and ``server`` the URL of its API server.
    """

    def __init__(
        self,
        nodes: Callable[[], Iterable[Node]],
        *,
        own: Callable[[str], bool],
        reach: Callable[[str], Kubeconfig],
        user: str = "",
        first: Peer | None = None,
        server: str = "",
    ) -> None:
        self._nodes = nodes
        self._own = own
        self._reach_url = reach
        self._server = server
        self._user = user
        self._first = first

    def __call__(self, reference: str) -> Sequence[Peer]:
        """Return the peers that may have the image of a complete name."""
        first = [self._first] if self._first is not None else []
        return [*first, *(self._peer(name, url) for name, url in self._having(reference))]

    def with_storage(self, storage: str) -> Peer | None:
        """Return a host that reaches the storage of an id; None if no ready node has it."""
        for node in self._others(lambda node: storage in _storages(node)):
            if url := url_of(node):
                return self._peer(key_of(node).name, url)
            if self._first is not None:  # a node of the API server's process has no port of its own
                return self._first
        return None

    def reach(self, name: str) -> Kubeconfig | None:
        """Return how to reach the API of a node of another host; None for an unknown one.

        A node of the API server's process has no port of its own: it is reached through that.
        """
        for node in self._nodes():
            if key_of(node).name == name:
                url = url_of(node) or self._server
                return self._reach_url(url) if url else None
        return None

    def _having(self, reference: str) -> list[tuple[str, str]]:
        """Return the nodes of other hosts that name an image, with their URLs; the oldest first."""
        found = [
            (key_of(node).name, url)
            for node in self._others(lambda node: reference in _names(node))
            if (url := url_of(node))
        ]
        return found[:MAX_ASKED]

    def _others(self, has: Callable[[Node], bool]) -> list[Node]:
        """Return the ready nodes of other hosts that have something; the oldest first."""
        found = (
            node
            for node in self._nodes()
            if not self._own(key_of(node).name) and has(node) and ready_status(node) == "True"
        )
        return sorted(found, key=by_age)

    def _peer(self, name: str, url: str) -> Peer:
        return Peer(partial(self._download, name, url), f"node {name}", user=self._user)

    @asynccontextmanager
    async def _download(
        self, name: str, url: str, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Request a path of a node's API; see ``Https.download``."""
        from corral.client.https import Https  # noqa: PLC0415 - most starts copy nothing

        async with (
            Https(self._reach_url(url), description=f"node {name}") as transport,
            transport.download(path, headers) as response,
        ):
            yield response


def url_of(node: Node) -> str:
    """Return the URL of a node's own API; empty for one that has none, or an address that is none.

    A node of the API server's own process has none.
    """
    port, address = kubelet_port(node), next(iter(internal_ips(node)), "")
    if not port or not address:
        return ""
    try:
        is_v6 = isinstance(ip_address(address), IPv6Address)
    except ValueError:  # other nodes write their Nodes: one that is wrong must not stop the rest
        return ""
    return f"https://{f'[{address}]' if is_v6 else address}:{port}"


def _names(node: Node) -> Iterator[str]:
    for image in (node.status and node.status.images) or ():
        yield from image.names or ()


def _storages(node: Node) -> tuple[str | None, ...]:
    """Return the ids of the storages that a node reaches."""
    labels = labels_of(node)
    return labels.get(STORAGE_LABEL), labels.get(SHARED_LABEL)
