"""Tests of who opens a connection with a certificate, over real TLS."""

import asyncio
import json
import ssl
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization

from corral import pki
from corral.api.errors import Unauthorized
from corral.api.request import Certificate, Request, User
from corral.api.revocation import MAP, USERS
from corral.pki import certificates, server_identity
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, REJECTED, Authenticator
from corral.server.authn.revocations import Revocations
from corral.server.transport.listener import listening, tls_context
from corral.store import Store

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
HOUR = timedelta(hours=1)


@asynccontextmanager
async def running(directory):
    """A server's port and identity."""
    known = pki.ensure(directory)
    store = Store.in_memory()
    server = ApiServer(store, authenticator=Authenticator({known.token: ADMINISTRATOR}))
    tls = tls_context(known.certificate, known.key, known.clients)
    async with listening(App(server), "127.0.0.1", 0, tls) as (_, port):
        yield known, port
        await store.close()


def issue(directory, *, name="lab1", groups=("system:masters",), lifetime=HOUR, authority=None):
    """A file with a client's certificate and key."""
    authority = authority or server_identity.clients_authority(directory)
    key = certificates.new_key()
    subject = certificates.subject_of(name, groups)
    certificate = certificates.issue_client(authority, subject, key.public_key(), lifetime)
    path = directory.parent / f"{name}.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM) + certificates.key_pem(key)
    )
    return path


async def ask(known, port, *, certificate=None, token=None):
    """The status and the body of the answer to who asks."""
    context = ssl.create_default_context(cafile=known.authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(
        f"POST {REVIEWS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{authorization}"
        "Connection: close\r\n\r\n{}".encode()
    )
    answer = await reader.read()
    writer.close()
    with suppress(OSError):  # TLS takes a few rounds of the loop to close
        await writer.wait_closed()
    if not answer:
        raise ConnectionError("the connection ended without an answer")
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_a_certificate_has_the_user_and_groups(tmp_path):
    async with running(tmp_path / "pki") as (known, port):
        shown = issue(tmp_path / "pki", groups=("lab", "system:masters"))
        status, review = await ask(known, port, certificate=shown)
    assert status == 201
    user = review["status"]["userInfo"]
    assert user["username"] == "lab1"
    assert user["groups"] == ["lab", "system:masters", "system:authenticated"]
    (credential,) = user["extra"]["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")


async def test_without_a_certificate_the_token_authenticates(tmp_path):
    async with running(tmp_path / "pki") as (known, port):
        assert (await ask(known, port))[0] == 401
        status, review = await ask(known, port, token=known.token)
    assert (status, review["status"]["userInfo"]["username"]) == (201, "kubernetes-admin")


async def test_an_expired_certificate_is_a_401(tmp_path):
    async with running(tmp_path / "pki") as (known, port):
        ended = issue(tmp_path / "pki", lifetime=timedelta(seconds=-5))
        assert (await ask(known, port, certificate=ended))[0] == 401
        status, review = await ask(known, port, certificate=ended, token=known.token)
    assert (status, review["status"]["userInfo"]["username"]) == (201, "kubernetes-admin")


@pytest.mark.parametrize("whose", ["a stranger", "the server's authority"])
async def test_a_certificate_of_another_ca_fails_the_handshake(tmp_path, whose):
    async with running(tmp_path / "pki") as (known, port):
        authority = (
            certificates.issue_authority("stranger")
            if whose == "a stranger"
            else certificates.read_pair(known.authority, tmp_path / "pki" / "ca.key")
        )
        shown = issue(tmp_path / "pki", authority=authority)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(known, port, certificate=shown)


async def test_a_server_certificate_is_no_client_certificate(tmp_path):
    async with running(tmp_path / "pki") as (known, port):
        authority = server_identity.clients_authority(tmp_path / "pki")
        pair = certificates.issue_server(authority, [])
        path = tmp_path / "server.pem"
        path.write_bytes(certificates.pem(pair.certificate) + certificates.key_pem(pair.key))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(known, port, certificate=path)


def user_of(now=50.0, **fields):
    shown = {"name": "lab1", "begins": 10.0, "ends": 100.0, "fingerprint": "ab", **fields}
    authenticator = Authenticator({"secret": User(name="bob")}, now=lambda: now)
    return authenticator.user(Request(method="GET", path="/", certificate=Certificate(**shown)))


def test_users_are_in_system_authenticated_once():
    assert user_of().groups == ("system:authenticated",)
    assert user_of(groups=("a", "system:authenticated", "a")).groups == (
        "a",
        "system:authenticated",
    )


@pytest.mark.parametrize(("now", "fields"), [(5.0, {}), (100.0, {}), (50.0, {"name": ""})])
def test_an_expired_future_or_nameless_certificate_is_rejected(now, fields):
    with pytest.raises(Exception, match="Unauthorized"):
        user_of(now, **fields)


async def test_the_reason_of_a_rejected_certificate_is_in_the_audit_log():
    store = Store.in_memory()
    shown = Certificate(name="anna", begins=1000.0, ends=2000.0, fingerprint="ab")
    known = Authenticator(revocations=Revocations(store))
    notes = []
    for now in (999, 1500, 2000):
        request = Request(method="GET", path="/api", certificate=shown)
        if now == 1500:
            revoked = {"data": {USERS: '{"anna": "1970-01-01T01:00:00Z"}'}}
            await store.write("configmaps", MAP, {"metadata": {**MAP._asdict()}, **revoked})
        with pytest.raises(Unauthorized, match=r"^Unauthorized$"):
            replace(known, now=lambda now=now: now).user(request)
        notes.append(request.annotations[REJECTED])
    assert notes == [
        'the certificate of "anna" is not valid before 1970-01-01T00:16:40Z',
        'the certificate of "anna" was revoked',
        'the certificate of "anna" expired at 1970-01-01T00:33:20Z',
    ]
    await store.close()


def test_a_renewed_ca_keeps_the_old_one_trusted(tmp_path, monkeypatch):
    known = pki.ensure(tmp_path / "pki")
    before = certificates.read_bundle(known.clients)
    monkeypatch.setattr(server_identity, "CLIENT_DAYS", certificates.AUTHORITY_DAYS)
    server_identity.clients_authority(tmp_path / "pki")
    after = certificates.read_bundle(known.clients)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1
    assert time.time() < after[0].not_valid_after_utc.timestamp()


async def test_a_running_server_trusts_the_renewed_ca_and_the_old_one(tmp_path, monkeypatch):
    known = pki.ensure(tmp_path / "pki")
    store = Store.in_memory()
    server = ApiServer(store)
    tls = tls_context(known.certificate, known.key, known.clients)
    old = issue(tmp_path / "pki", name="old")
    async with listening(App(server), "127.0.0.1", 0, tls) as (_, port):
        with monkeypatch.context() as later:
            later.setattr(server_identity, "CLIENT_DAYS", certificates.AUTHORITY_DAYS)
            assert not pki.renew(tmp_path / "pki", [], tls)
        new = issue(tmp_path / "pki", name="new")
        for certificate, name in ((old, "old"), (new, "new")):
            _, review = await ask(known, port, certificate=certificate)
            assert review["status"]["userInfo"]["username"] == name
        await store.close()
