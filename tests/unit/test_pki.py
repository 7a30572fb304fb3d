"""Tests of certificates, the token and the kubeconfig."""

import json
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from corral import pki


def names(identity):
    certificate = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name) for name in found.get_values_for_type(x509.IPAddress)} | set(
        found.get_values_for_type(x509.DNSName)
    )


def test_what_is_made_is_private_and_covers_this_machine(tmp_path):
    identity = pki.ensure(tmp_path / "pki", ["10.0.0.7", "vm.example.com"])
    assert {"127.0.0.1", "::1", "localhost", "10.0.0.7", "vm.example.com"} <= names(identity)
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "pki").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert len(identity.token) >= 32
    context = ssl.create_default_context(cafile=identity.authority)
    assert context.cert_store_stats()["x509_ca"] == 1


def test_a_second_time_nothing_changes(tmp_path):
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
def test_certificates_are_renewed_before_they_end(tmp_path, monkeypatch, days, renewed):
    pki.ensure(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(pki, "datetime", Later)
    pki.ensure(tmp_path)
    changed = {path.name for path in tmp_path.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == (renewed or {"ca.crt", "ca.key", "server.crt", "server.key"})


def test_a_pair_that_a_crash_cut_in_two_is_made_anew(tmp_path):
    pki.ensure(tmp_path)
    (tmp_path / "server.crt").unlink()
    identity = pki.ensure(tmp_path)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        identity.certificate, identity.key
    )


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.crt", "server.key", "token"])
def test_a_broken_file_is_named(tmp_path, name):
    pki.ensure(tmp_path)
    (tmp_path / name).write_bytes(b"\xff broken")
    with pytest.raises(pki.PkiError, match=name.replace(".", r"\.")):
        pki.ensure(tmp_path)


def test_files_that_do_not_belong_together_are_named(tmp_path):
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


def test_a_private_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    pki.write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
