"""A joined host's membership, and its certificates that are renewed."""

import base64
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.responses import JSONResponse

from corral import pki
from corral.api.errors import Unavailable
from corral.api.request import Response
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.config import Layout
from corral.daemon.errors import CannotStart
from corral.daemon.membership import (
    CLIENT,
    SERVING,
    Credentials,
    Membership,
    NetworkSettings,
    _authority,
    bootstrap,
    certificate_of,
    config_of,
    forget,
)
from corral.server.transport import date_header
from corral.server.transport.listener import listening, tls_context

SERVER = "https://192.0.2.1:6443"
HOSTS = ["192.0.2.7", "node1"]
NEVER_DUE = None
"""Seconds that a certificate lasts: as long as it may."""


@dataclass
class Signer:
    """An API server that signs requests for certificates, or denies them."""

    authority: Layout
    lasts: int | None = NEVER_DUE
    denial: str = ""
    requests: list[dict] = field(default_factory=list)

    async def send(self, request):
        if request.method == "POST":
            self.requests.append(json.loads(request.body)["spec"])
            return self._response(request.body, 201)
        document = {
            "metadata": {"name": "csr"},
            "spec": self.requests[-1],
            "status": self._status(),
        }
        return self._response(json.dumps(document).encode(), 200)

    def _status(self):
        if self.denial:
            condition = {"type": "Denied", "status": "True", "message": self.denial}
            return {"conditions": [condition]}
        spec = self.requests[-1]
        is_serving = spec["signerName"].endswith("kubelet-serving")
        sign = pki.sign_serving_request if is_serving else pki.sign_request
        signed = sign(self.authority.pki, base64.b64decode(spec["request"]), self.lasts)
        return {"certificate": base64.b64encode(signed).decode()}

    @staticmethod
    def _response(body, status):
        return Response(status=status, headers=[("content-type", "application/json")], body=body)


@pytest.fixture
def signer(tmp_path):
    authority = Layout(tmp_path / "first")
    authority.root.mkdir()
    pki.ensure(authority.pki)
    return Signer(authority)


@pytest.fixture
def layout(tmp_path, signer):
    """The data directory of a host that trusts the cluster's authority already."""
    made = Layout(tmp_path / "second")
    made.pki.mkdir(parents=True)
    made.authority.write_bytes(signer.authority.authority.read_bytes())
    return made


@pytest.fixture
def credentials(layout):
    return Credentials(layout, "node1")


def test_a_membership_round_trips(layout):
    assert Membership.load(layout) is None
    member = Membership(SERVER, "node1", NetworkSettings("10.244.0.0/16", "10.96.0.0/12", "vxlan"))
    member.save(layout)
    assert Membership.load(layout) == member
    assert json.loads(layout.membership.read_text())["network"]["podCIDRs"] == "10.244.0.0/16"


def test_a_missing_file_is_named_with_the_remedy(layout):
    with pytest.raises(CannotStart, match=r"kubelet-client\.crt is missing") as failure:
        config_of(layout, SERVER)
    assert "Join again, with a token" in failure.value.hint


async def test_a_serving_certificate_is_for_the_hosts_and_kept(signer, layout, credentials):
    assert credentials.served(HOSTS) is None
    certificate, key = await credentials.serving(Client(signer), HOSTS)
    assert set(pki.certificate_hosts(certificate.read_bytes())) == set(HOSTS)
    assert key.stat().st_mode & 0o777 == 0o600
    assert signer.requests[0]["usages"] == ["digital signature", "key encipherment", "server auth"]
    assert credentials.served(HOSTS) == (certificate, key)
    assert credentials.served(["192.0.2.8", "node1"]) is None, "its address has changed"
    begins, ends = certificate_of(layout, SERVING)
    assert begins < ends


async def test_a_certificate_is_renewed_in_the_last_third_of_its_time(signer, layout, credentials):
    await renewed(signer, layout, seconds=2)  # it begins minutes ago, as clocks differ
    tls = ssl.create_default_context()
    signer.lasts = 2
    assert await credentials.renew(Client(signer), tls)
    signer.lasts = NEVER_DUE
    assert await credentials.renew(Client(signer), tls)
    before = certificate_of(layout, CLIENT)
    assert not await credentials.renew(Client(signer), tls)
    assert certificate_of(layout, CLIENT) == before
    config = config_of(layout, SERVER)
    assert config.tls() is not None, "the key fits the certificate"
    assert config.server == SERVER


async def renewed(signer, layout, *, seconds):
    """Give the host a client certificate that lasts so long."""
    key, request = pki.new_request("system:node:node1", ("system:nodes",))
    certificate = pki.sign_request(signer.authority.pki, request, seconds)
    (layout.pki / "kubelet-client.key").write_bytes(key)
    (layout.pki / "kubelet-client.crt").write_bytes(certificate)


async def test_a_denied_request_has_its_message(signer, credentials):
    signer.denial = "not today"
    with pytest.raises(CannotStart, match="certificate of node node1 was refused: not today"):
        await credentials.serving(Client(signer), HOSTS)
    assert credentials.served(HOSTS) is None


async def test_leaving_removes_the_keys(signer, layout, credentials):
    await credentials.serving(Client(signer), HOSTS)
    await renewed(signer, layout, seconds=NEVER_DUE)
    Membership(SERVER, "node1", NetworkSettings("", "")).save(layout)
    layout.options.write_text("[]")
    pki.wireguard_key(layout.wireguard_key)
    forget(layout)
    assert list(layout.pki.iterdir()) == []
    assert [each.name for each in layout.root.iterdir()] == ["pki"]
    assert certificate_of(layout, CLIENT) is None
    forget(layout)


@asynccontextmanager
async def serving_cluster_info(directory, text=None):
    """Serve kube-public/cluster-info; yields the URL and the hash of the authority in it."""
    identity = pki.ensure(directory, ["127.0.0.1"])
    authority = identity.authority.read_text()
    kubeconfig = pki.cluster_info(SERVER, authority).decode() if text is None else text
    metadata = {"name": "cluster-info", "namespace": "kube-public"}
    document = {"metadata": metadata, "data": {"kubeconfig": kubeconfig}}
    tls = tls_context(identity.certificate, identity.key)
    async with listening(JSONResponse(document), "127.0.0.1", 0, tls) as (_, port):
        yield f"https://127.0.0.1:{port}", pki.public_key_hash(authority)


async def test_the_authority_is_compared_with_its_hash(tmp_path):
    async with serving_cluster_info(tmp_path / "pki") as (url, right):
        assert "BEGIN CERTIFICATE" in await _authority(url, right)
        with pytest.raises(CannotStart, match=f"has the hash {right}, not sha256:0"):
            await _authority(url, "sha256:0")


@pytest.mark.parametrize("is_first", [True, False])
async def test_no_authority_is_trusted_beside_that_of_the_hash(tmp_path, is_first):
    ours, theirs = (pki.ensure(tmp_path / name).authority.read_text() for name in ("a", "b"))
    both = f"{ours}{theirs}" if is_first else f"{theirs}{ours}"
    text = pki.cluster_info(SERVER, both).decode()
    async with serving_cluster_info(tmp_path / "b", text) as (url, _):
        assert await _authority(url, pki.public_key_hash(ours)) == ours


@pytest.mark.parametrize("text", ["", "{", "[]", '{"clusters": [{"cluster": {}}]}'])
async def test_cluster_info_that_cannot_be_read_is_reported(tmp_path, text):
    async with serving_cluster_info(tmp_path / "pki", text) as (url, right):
        with pytest.raises(CannotStart, match=r"kube-public/cluster-info of .* cannot be read"):
            await _authority(url, right)


async def test_a_host_whose_clock_is_far_off_does_not_join(tmp_path, monkeypatch):
    written = date_header._of
    monkeypatch.setattr(date_header, "_of", lambda second: written(second - 3 * 3600))
    async with serving_cluster_info(tmp_path / "pki") as (url, right):
        with pytest.raises(
            CannotStart, match=r"is 3 hours ahead of that of the API server"
        ) as error:
            await _authority(url, right)
    assert "Set it" in error.value.hint


async def test_an_unreachable_server_is_an_error(signer, layout):
    authority = signer.authority.authority.read_text()
    config = Kubeconfig(server="https://127.0.0.1:1", authority=authority, token="t")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 does not answer"):
        await bootstrap(layout, config, "node1")
