"""One image from one registry, whatever the registry and the network do."""

import asyncio
import hashlib
from ipaddress import ip_network

import pytest

from corral.node.host.destinations import ANYWHERE, FOR_TENANTS, Destinations
from corral.node.images import manifest
from corral.node.images.credentials import Credential
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, silent
from corral.node.images.reference import Reference, parse
from corral.node.images.registry import Registry

CONTENT = bytes(range(256)) * 40_000  # 10 MB: several pieces


class Sink:
    """A layer in memory."""

    def __init__(self):
        self.content = b""

    @property
    def received(self):
        return len(self.content)

    def write(self, piece):
        self.content += piece

    def restart(self):
        self.content = b""

    def sha256(self):
        return hashlib.sha256(self.content).hexdigest()


async def fetch(name, limits, credential=None, destinations=ANYWHERE):
    """The content of an image's layers."""
    async with Registry(
        parse(name), credential, limits=limits, destinations=destinations
    ) as registry:
        digest, found = await registry.manifest()
        sinks = []
        for layer in found.layers:
            sinks.append(sink := Sink())
            await registry.layer(layer, sink, Meter(silent, "download"))
    return digest, [sink.content for sink in sinks]


async def test_a_layer_is_downloaded_completely(registry, limits):
    name = registry.add("a", CONTENT, b"second", pack=bytes)
    assert (await fetch(name, limits))[1] == [CONTENT, b"second"]


async def test_an_interrupted_layer_is_resumed(registry, limits):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.fault.cut_after = [3_000_000, 2_500_000, 0, 0]
    assert (await fetch(name, limits))[1] == [CONTENT]
    assert registry.count("/blobs/") == 5


async def test_a_registry_that_ignores_range(registry, limits):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.fault.cut_after = [3_000_000]
    registry.fault.ignore_range = True
    assert (await fetch(name, limits))[1] == [CONTENT]


async def test_a_registry_that_rejects_range(registry, limits):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.fault.cut_after = [3_000_000]
    registry.fault.refuse_range = True
    assert (await fetch(name, limits))[1] == [CONTENT]


async def test_a_registry_without_progress_times_out(registry, limits):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.fault.cut_after = [0] * 10
    with pytest.raises(ImageError) as caught:
        await fetch(name, limits)
    assert caught.value.reason == "ErrImagePull"
    assert registry.count("/blobs/") == limits.attempts


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_registry_is_retried(registry, limits, status):
    name = registry.add("a", b"x", pack=bytes)
    registry.fault.statuses = [status] * (limits.attempts - 1)
    assert (await fetch(name, limits))[1] == [b"x"]
    registry.fault.statuses = [status] * limits.attempts
    with pytest.raises(ImageError, match=f"the registry responded {status}"):
        await fetch(name, limits)


@pytest.mark.parametrize(
    ("status", "message"), [(404, "not found"), (403, "access denied"), (400, "responded 400")]
)
async def test_other_errors_are_final(registry, limits, status, message):
    name = registry.add("a", b"x", pack=bytes)
    registry.fault.statuses = [status]
    with pytest.raises(ImageError, match=message):
        await fetch(name, limits)
    assert len(registry.requests) == 1


async def test_a_layer_with_a_wrong_digest_is_rejected(registry, limits):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.fault.corrupt = True
    with pytest.raises(ImageError, match="has the digest sha256:"):
        await fetch(name, limits)


async def test_a_layer_longer_than_announced(registry, limits, shapes):
    name = registry.add("a", CONTENT, pack=bytes)
    registry.blobs[shapes.digest_of(CONTENT)] += b"more"
    with pytest.raises(ImageError, match="longer than announced"):
        await fetch(name, limits)


async def test_an_image_by_digest(registry, limits):
    name = registry.add("a", b"x", pack=bytes)
    digest, _ = await fetch(name, limits)
    exact = f"{registry.address}/a@{digest}"
    assert await fetch(exact, limits) == (digest, [b"x"])
    key = f"/v2/a/manifests/{digest}"
    kind, body = registry.manifests[key]
    registry.manifests[key] = (kind, body + b" ")
    with pytest.raises(ImageError, match="has the digest"):
        await fetch(exact, limits)


def index(registry, *platforms, repository="a"):
    entries = []
    for number, (system, architecture) in enumerate(platforms):
        registry.add(repository, b"%d" % number, pack=bytes, tag=f"t{number}")
        _, body = registry.manifests[f"/v2/{repository}/manifests/t{number}"]
        platform = {"os": system, "architecture": architecture}
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        entries.append({"digest": digest, "size": len(body), "platform": platform})
    registry.add_manifest(
        repository, "latest",
        {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPES[0], "manifests": entries},
    )  # fmt: skip
    return f"{registry.address}/{repository}"


async def test_indexes_in_indexes_are_not_followed(registry, limits):
    """However many there are: none is of use, and each would be one more request."""
    name = registry.add("a", b"x", pack=bytes)
    digest = registry.add_manifest("a", "0", {"schemaVersion": 2, "manifests": []})
    for number in range(1, 50):
        entry = {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}
        nested = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPES[0], "manifests": [entry]}
        digest = registry.add_manifest("a", str(number), nested)
    with pytest.raises(ImageError, match="its index holds another index"):
        await fetch(name.replace(":latest", ":49"), limits)
    assert registry.count("/manifests/") == 2


async def test_the_platform_of_guests_is_selected(registry, limits):
    name = index(registry, ("linux", "arm64"), ("linux", "amd64"), ("windows", "amd64"))
    assert (await fetch(name, limits))[1] == [b"1"]


async def test_no_image_for_the_platform_of_the_guests(registry, limits):
    name = index(registry, ("linux", "arm64"), ("linux", "s390x"))
    with pytest.raises(ImageError, match="no image for linux/amd64; there is linux/arm64, linux/s"):
        await fetch(name, limits)


# --------------------------------------------------------------- authorization


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
async def test_credentials(registry, limits, scheme):
    registry.scheme = scheme
    name = registry.add("a", b"x", pack=bytes)
    assert (await fetch(name, limits, Credential("", "user", "secret")))[1] == [b"x"]
    for credential in (None, Credential("", "user", "wrong")):
        with pytest.raises(ImageError, match="access denied") as caught:
            await fetch(name, limits, credential)
        assert "imagePullSecret" in caught.value.hint
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("realm", ["http://198.51.100.1/token", "ftp://x/", "", "token"])
async def test_credentials_are_not_sent_to_foreign_token_servers(registry, limits, realm):
    name = registry.add("a", b"x", pack=bytes)
    registry.scheme, registry.realm = "bearer", realm or " "
    with pytest.raises(ImageError, match="not to https"):
        await fetch(name, limits, Credential("", "user", "secret"))


async def test_credentials_are_not_sent_after_a_redirect(registry, limits):
    name = registry.add("a", b"x", pack=bytes)
    registry.scheme = "basic"
    async with type(registry)().running() as elsewhere:
        elsewhere.blobs = registry.blobs
        registry.fault.redirect = (
            f"http://{elsewhere.address}/data/{next(reversed(registry.blobs))}"
        )
        credential = Credential("", "user", "secret")
        assert (await fetch(name, limits, credential))[1] == [b"x"]
        assert elsewhere.authorizations == [""]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("http://198.51.100.1/blob", "not to https"),
        ("http://169.254.169.254/latest/meta-data", "not to https"),
        ("file:///etc/passwd", "not to https"),
        ("/blobs/again", "redirects without end"),
    ],
)
async def test_bad_redirects(registry, limits, target, message):
    name = registry.add("a", b"x", pack=bytes)
    registry.fault.redirect = target
    with pytest.raises(ImageError, match=message):
        await fetch(name, limits)


async def test_registries_on_the_host_are_not_for_tenants(registry, limits):
    name = registry.add("a", b"x", pack=bytes)
    with pytest.raises(ImageError, match="loopback, which only an administrator opens") as caught:
        await fetch(name, limits, destinations=FOR_TENANTS)
    assert caught.value.reason == "ErrImagePull"
    assert registry.requests == []


@pytest.mark.parametrize("port", ["open", "closed"])
async def test_a_rejection_does_not_reveal_open_ports(registry, limits, port):
    number = registry.port if port == "open" else 1
    with pytest.raises(ImageError) as caught:
        await fetch(f"127.0.0.1:{number}/a", limits, destinations=FOR_TENANTS)
    assert caught.value.message.endswith(
        "127.0.0.1 is not connected to: its address is loopback, which only an administrator opens "
        "(corral up --allow-destination)"
    )


async def test_targets_of_redirects_are_checked(registry, limits):
    """Only the registry itself is allowed: what it refers to is not reached."""
    name = registry.add("a", b"x", pack=bytes)
    registry.fault.redirect = f"http://127.0.0.2:{registry.port}/v2/a/manifests/other"
    only = Destinations(allowed=(ip_network("127.0.0.1/32"),))
    with pytest.raises(ImageError, match=r"127\.0\.0\.2 is not connected to"):
        await fetch(name, limits, destinations=only)
    assert registry.count("/manifests/") == 1, "the redirect of the layer was not followed"


async def test_token_servers_are_checked(registry, limits):
    name = registry.add("a", b"x", pack=bytes)
    registry.scheme, registry.realm = "bearer", f"http://127.0.0.2:{registry.port}/token"
    only = Destinations(allowed=(ip_network("127.0.0.1/32"),))
    with pytest.raises(ImageError, match=r"127\.0\.0\.2 is not connected to"):
        await fetch(name, limits, Credential(registry.address, "user", "secret"), only)
    assert len(registry.requests) == 1


def test_plain_http_is_for_local_registries_only():
    def scheme(name):
        return Registry(parse(name), None, limits=Limits(), destinations=ANYWHERE)._base.scheme

    assert scheme("127.0.0.1:5000/a") == "http"
    assert scheme("localhost/a") == "http"
    assert scheme("[::1]:5000/a") == "http"
    assert scheme("r.example:5000/a") == "https"
    assert scheme("localhost.example/a") == "https"


def test_docker_hub_has_another_address():
    base = Registry(
        Reference("docker.io", "library/a", "1", ""), None, limits=Limits(), destinations=ANYWHERE
    )._base
    assert str(base) == "https://registry-1.docker.io/v2/library/a/"


async def test_a_refused_connection_is_reported(limits):
    with pytest.raises(ImageError, match=r"failed to pull image '127\.0\.0\.1:1/a:latest'"):
        await fetch("127.0.0.1:1/a", limits)


async def test_a_silent_registry_times_out(registry, shapes):
    name = registry.add("a", b"x", pack=bytes)
    registry.fault.gate = asyncio.Event()
    quick = Limits(stall_seconds=0.05, attempts=2, retry_seconds=0.001)
    with pytest.raises(ImageError, match="127"):
        await fetch(name, quick)
    registry.fault.gate.set()


async def test_the_size_of_a_manifest_is_limited(registry, limits):
    name = registry.add("a", b"x", pack=bytes)
    registry.manifests["/v2/a/manifests/latest"] = ("x", b" " * (5 << 20))
    with pytest.raises(ImageError, match="answer exceeds"):
        await fetch(name, limits)
