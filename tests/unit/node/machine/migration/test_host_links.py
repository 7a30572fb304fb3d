"""Links to nodes of other hosts; the requests themselves are tested with hosts (e2e)."""

import tempfile

import pytest
from bench.cluster import free_port

from corral.api.errors import Unavailable
from corral.client.kubeconfig import Kubeconfig
from corral.node.machine.migration.host_links import HostLinks

QUERY = {"migration": "m"}


@pytest.mark.parametrize("method", ["open", "download"])
async def test_a_node_without_an_address_is_unavailable(method):
    links = HostLinks(lambda _: None)
    with pytest.raises(Unavailable, match="node b has no address and port"):
        async with getattr(links, method)("b", QUERY):
            pass


@pytest.mark.parametrize("method", ["open", "download"])
async def test_a_node_that_does_not_answer_is_named(
    method,
):
    links = HostLinks(lambda _: Kubeconfig(server=f"https://127.0.0.1:{free_port()}"))
    with pytest.raises(Unavailable, match="node b at"):
        async with getattr(links, method)("b", QUERY):
            pass


async def test_a_certificate_that_cannot_be_shown_leaves_the_node_unavailable(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    config = Kubeconfig(server="https://127.0.0.1:1", certificate="x", key="y")
    with pytest.raises(Unavailable, match=r"node b cannot be called: .*No space left"):
        async with HostLinks(lambda _: config).open("b", QUERY):
            pass
