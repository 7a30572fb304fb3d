"""Tests of certificates, the token and the kubeconfig."""

import asyncio
import json
import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from corral import hosts, pki
from corral.pki import certificates


def names(identity):
    certificate = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name) for name in found.get_values_for_type(x509.IPAddress)} | set(
        found.get_values_for_type(x509.DNSName)
    )


def test_created_files_are_private_and_cover_this_host(tmp_path):
    identity = pki.ensure(tmp_path / "pki", ["10.0.0.7", "vm.example.com"])
    assert {"127.0.0.1", "::1", "localhost", "10.0.0.7", "vm.example.com"} <= names(identity)
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "pki").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert len(identity.token) >= 32
    context = ssl.create_default_context(cafile=identity.authority)
    assert context.cert_store_stats()["x509_ca"] == 1


def test_existing_files_are_kept(tmp_path):
    first = pki.ensure(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert pki.ensure(tmp_path) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_host_gets_a_new_certificate_of_the_same_authority(tmp_path):
    first = pki.ensure(tmp_path)
    authority = first.authority.read_bytes()
    second = pki.ensure(tmp_path, ["10.1.1.1"])
    assert "10.1.1.1" in names(second)
    assert second.authority.read_bytes() == authority
    assert second.token == first.token


@pytest.mark.parametrize(("days", "renewed"), [(340, {"server.crt", "server.key"}), (3640, None)])
def test_certificates_are_renewed_before_they_expire(tmp_path, monkeypatch, days, renewed):
    pki.ensure(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(certificates, "datetime", Later)
    pki.ensure(tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    changed = {name for name, content in after.items() if content != before[name]}
    assert changed == (renewed or {*after} - {"token", "service-accounts.pem"})


def test_an_incomplete_pair_is_replaced(tmp_path):
    pki.ensure(tmp_path)
    (tmp_path / "server.crt").unlink()
    identity = pki.ensure(tmp_path)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        identity.certificate, identity.key
    )


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.crt", "server.key", "token"])
def test_an_invalid_file_is_named(tmp_path, name):
    pki.ensure(tmp_path)
    (tmp_path / name).write_bytes(b"\xff broken")
    with pytest.raises(pki.PkiError, match=name.replace(".", r"\.")):
        pki.ensure(tmp_path)


def test_a_key_that_does_not_match_is_named(tmp_path):
    pki.ensure(tmp_path / "a")
    pki.ensure(tmp_path / "b")
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    with pytest.raises(pki.PkiError, match=r"ca\.key does not belong to"):
        pki.ensure(tmp_path / "a")


def test_the_kubeconfig_names_server_authority_and_token(tmp_path):
    identity = pki.ensure(tmp_path)
    document = json.loads(pki.kubeconfig(identity, "127.0.0.1:6443"))
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert document["users"][0]["user"]["token"] == identity.token
    assert document["current-context"] == document["contexts"][0]["name"]


def test_a_private_file_is_replaced_atomically(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    pki.write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", [".", "ca.key", "server.key", "token", "server.crt"])
@pytest.mark.parametrize("mode", [0o777, 0o620])
def test_files_writable_by_others_are_rejected(tmp_path, name, mode):
    pki.ensure(tmp_path)
    (tmp_path / name).chmod(mode)
    with pytest.raises(pki.PkiError, match=r"can be written by others .*chmod go-w"):
        pki.ensure(tmp_path)
    (tmp_path / name).chmod(0o700)
    pki.ensure(tmp_path)


def test_a_token_owned_by_another_user_is_rejected(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("x" * 40)
    if os.geteuid() == 0:
        try:
            os.chown(path, 4711, -1)
        except PermissionError:
            pytest.skip("root without CAP_CHOWN owns whatever it makes")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(pki.PkiError, match="belongs to another user"):
        pki.ensure(tmp_path)


@pytest.mark.parametrize(
    "token", [b"short", b"x" * 31 + b"\xff", b"two words of a token that is long"]
)
def test_a_token_is_complete_or_rejected(tmp_path, token):
    (tmp_path / "token").write_bytes(token)
    with pytest.raises(pki.PkiError, match="token holds no token"):
        pki.ensure(tmp_path)


def test_an_unusable_directory_is_named(tmp_path):
    (tmp_path / "pki").write_bytes(b"")
    with pytest.raises(pki.PkiError, match=r"certificates in .*/pki cannot be used"):
        pki.ensure(tmp_path / "pki")


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_wildcard_address_covers_the_addresses_of_the_host(tmp_path, monkeypatch, wildcard):
    monkeypatch.setattr(hosts, "addresses", lambda: ["10.9.8.7", "2001:db8::7"])
    identity = pki.ensure(tmp_path, [wildcard])
    assert {"10.9.8.7", "2001:db8::7", "127.0.0.1"} <= names(identity)
    assert wildcard not in names(identity)


def test_a_wildcard_address_is_loopback_in_the_kubeconfig(tmp_path, monkeypatch):
    identity = pki.ensure(tmp_path)

    def server(address):
        return json.loads(pki.kubeconfig(identity, address))["clusters"][0]["cluster"]["server"]

    assert server("[::1]:6443") == "https://[::1]:6443"
    monkeypatch.setattr(hosts, "reachable", {"0.0.0.0": "10.0.0.7", "::": "2001:db8::7"}.get)
    assert server("0.0.0.0:6443") == "https://10.0.0.7:6443"
    assert server("[::]:6443") == "https://[2001:db8::7]:6443"


def test_host_names_are_encoded_for_dns(tmp_path):
    assert "xn--mnchen-3ya.example" in names(pki.ensure(tmp_path, ["m\u00fcnchen.example"]))
    with pytest.raises(pki.PkiError, match="cannot stand in a certificate"):
        pki.ensure(tmp_path, ["\u00fc" * 64])


async def shown(context, authority):
    """The serial number of the certificate that a server with this context shows."""

    async def accept(_reader, writer):
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()
        trusting = ssl.create_default_context(cafile=authority)
        _, writer = await asyncio.open_connection(host, port, ssl=trusting)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        with suppress(OSError):  # TLS takes a few rounds of the loop to close
            await writer.wait_closed()
    return certificate["serialNumber"]


async def test_a_running_server_renews_its_certificate(tmp_path):
    identity = pki.ensure(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    first = await shown(context, identity.authority)
    assert not pki.renew(tmp_path, [], context)
    assert await shown(context, identity.authority) == first
    assert pki.renew(tmp_path, ["10.0.0.7"], context)
    assert await shown(context, identity.authority) != first


def test_a_failed_renewal_is_an_error(tmp_path):
    identity = pki.ensure(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    identity.certificate.unlink()
    with pytest.raises(pki.PkiError, match=r"server\.crt"):
        pki.renew(tmp_path, [], context)


def test_the_front_proxy_authority_has_no_stored_key(tmp_path):
    pki.ensure(tmp_path)
    authority = pki.front_proxy_authority(tmp_path)
    assert pki.front_proxy_authority(tmp_path) == authority
    assert authority not in {(tmp_path / name).read_text() for name in ("ca.crt", "clients.crt")}
    assert not list(tmp_path.glob("front-proxy*.key"))
