"""What is chosen among the offers of several hosts."""

from contextlib import asynccontextmanager

import msgspec
import pytest

from corral.api.errors import Unavailable
from corral.node.images.asking import ask
from corral.node.images.offer import Offer, RequestedImage
from corral.node.images.peer import Peer

IMAGE = RequestedImage("lab/debian:12", "", ())


def offer(source, digest="sha256:1"):
    manifest = "" if source == "import" else f"manifest of {digest}"
    return Offer(
        digest=digest, size=1, format="raw", virtual_size=1, source=source, manifest=manifest
    )


def peer(name, answer):
    """A host that answers with an offer, bytes, None (no such image), or not at all."""

    @asynccontextmanager
    async def download(_path, _headers):
        if isinstance(answer, Exception):
            raise answer
        content = msgspec.json.encode(answer) if isinstance(answer, Offer) else answer

        async def chunks():
            yield content

        yield (404 if answer is None else 200), chunks()

    return Peer(download, name)


async def test_the_first_usable_offer_is_chosen():
    offers = await ask(
        [peer("a", None), peer("b", offer("import", "sha256:b")), peer("c", offer("import"))],
        IMAGE,
        "Always",
    )
    assert offers.usable.peer.name == "b"
    assert not offers.failed


@pytest.mark.parametrize(("policy", "usable"), [("Always", False), ("IfNotPresent", True)])
async def test_a_pulled_image_may_need_its_registry(policy, usable):
    offers = await ask([peer("a", offer("pull"))], IMAGE, policy)
    assert (offers.usable is not None) == usable
    assert usable or offers.pulled.keys() == {"manifest of sha256:1"}


@pytest.mark.parametrize("answer", [Unavailable("away"), b"{", b"x" * (1 << 17)])
async def test_a_host_that_fails_leaves_the_others(answer):
    offers = await ask([peer("a", answer), peer("b", offer("import"))], IMAGE, "Always")
    assert offers.usable.peer.name == "b"
    assert offers.failed
