"""Kubelets of other hosts are found by the address and port in their Nodes."""

import ssl

from corral.api.object import Key
from corral.client.reverse_proxy import ReverseProxy
from corral.server.node_proxy.remote_nodes import RemoteNodes
from corral.store import Store


def node(name: str, *addresses: tuple[str, str]) -> dict:
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    return {"metadata": {"name": name}, "status": {"addresses": listed}}


async def test_a_node_with_an_internal_address_has_one_proxy():
    store = Store.in_memory()
    await store.write("nodes", Key("", "a"), node("a", ("InternalIP", "192.0.2.1")))
    nodes = RemoteNodes(store, ssl.create_default_context())
    proxy = nodes("a")
    assert isinstance(proxy, ReverseProxy)
    assert nodes("a") is proxy
    await nodes.aclose()
    await store.close()


async def test_a_node_without_an_internal_address_has_none():
    store = Store.in_memory()
    await store.write("nodes", Key("", "a"), node("a", ("Hostname", "a.example")))
    nodes = RemoteNodes(store, ssl.create_default_context())
    assert nodes("a") is None
    assert nodes("missing") is None
    await store.close()
