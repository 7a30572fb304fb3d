"""A server's identity: CAs, certificates, keys and token, in one directory.

Keys have mode 0600.  ``ensure`` creates missing and soon expiring ones and keeps the rest, so that
copied kubeconfigs remain valid; a running server calls ``renew`` once a day.
"""

import re
import secrets
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from corral import files, hosts
from corral.pki.certificates import (
    Pair,
    PkiError,
    general_name,
    issue_authority,
    issue_server,
    pem,
    pki_errors,
    read_bundle,
    read_pair,
    write_pair,
)
from corral.pki.signing import SigningKey

RENEW_DAYS = 30
CLIENT_DAYS = 365
"""Maximum lifetime of a client certificate."""
_TOKEN = re.compile(rb"[!-~]{32,}")


@dataclass(frozen=True, slots=True)
class Identity:
    """The files and secrets of a server.

    authority: the CA of the server's certificate; clients: the bundle of client CAs.
    token: the administrator's; account_key: signs ServiceAccount tokens.
    """

    certificate: Path
    key: Path
    authority: Path
    clients: Path
    token: str
    account_key: SigningKey


def ensure(directory: Path, listening: Sequence[str] = ()) -> Identity:
    """Create or load the identity, with a server certificate for this host and its addresses.

    listening: addresses; a wildcard stands for all of the host.  Raises PkiError for files that are
    damaged, do not match, or may have been written by another user.
    """
    with pki_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_trusted_files(directory)
        certificate, key = _server(directory, listening)
        clients_authority(directory)
        return Identity(
            certificate,
            key,
            directory / "ca.crt",
            directory / "clients.crt",
            token=_secret(directory / "token"),
            account_key=SigningKey.load_or_create(directory / "service-accounts.pem"),
        )


def renew(directory: Path, listening: Sequence[str], context: ssl.SSLContext) -> bool:
    """Reissue certificates that expire soon or lack an address, and load them into the context.

    Established connections are not affected.  Returns True if the server's certificate changed: the
    caller then writes the kubeconfig again, since the CA may have changed.  Raises PkiError; the
    context keeps the previous certificate then.
    """
    with pki_errors(directory):
        _require_trusted_files(directory)
        before = (directory / "server.crt").read_bytes()
        certificate, key = _server(directory, listening)
        clients_authority(directory)
        context.load_verify_locations(directory / "clients.crt")
        if certificate.read_bytes() == before:
            return False
        context.load_cert_chain(certificate, key)
        return True


def _require_trusted_files(directory: Path) -> None:
    """Raises PkiError for files that other users can write: they could replace the CA."""
    for path in (directory, *sorted(directory.iterdir())):
        if reason := files.untrusted(path):
            raise PkiError(
                f"{path} {reason}. If you know what it holds, make it yours alone "
                f"(chown, chmod go-w {path}); else remove it to have it made anew."
            )


def _server(directory: Path, listening: Sequence[str]) -> tuple[Path, Path]:
    """Return the server certificate and its key; create a pair unless one is valid."""
    authority = authority_of(directory)
    certificate, key = directory / "server.crt", directory / "server.key"
    names = _general_names(listening)
    pair = read_pair(certificate, key)
    soon = timedelta(days=RENEW_DAYS)
    if pair is None or pair.ends_within(soon) or not pair.serves(authority, names):
        write_pair(certificate, key, issue_server(authority, names))
    return certificate, key


def _general_names(listening: Sequence[str]) -> list[x509.GeneralName]:
    """Return the server certificate's subject alternative names, sorted."""
    names = {"127.0.0.1", "::1", "localhost", socket.gethostname(), *listening}
    if any(map(hosts.is_wildcard, listening)):
        names.update(hosts.addresses())
    return [general_name(name) for name in sorted(names) if not hosts.is_wildcard(name)]


def authority_of(directory: Path) -> Pair:
    """Return the authority that certifies this server and the serving certificates of nodes."""
    certificate, key = directory / "ca.crt", directory / "ca.key"
    pair = read_pair(certificate, key)
    if pair is None or pair.ends_within(timedelta(days=RENEW_DAYS)):
        pair = issue_authority("corral-ca")
        write_pair(certificate, key, pair)
    return pair


def clients_authority(directory: Path) -> Pair:
    """Load or issue the client CA, a separate one so that a server certificate is no client's.

    It is replaced before the certificates that it issued expire, and trusted until then.
    """
    certificate, key = directory / "clients-ca.crt", directory / "clients-ca.key"
    pair = read_pair(certificate, key)
    if pair is not None and not pair.ends_within(timedelta(days=CLIENT_DAYS + RENEW_DAYS)):
        _trust(directory, pair.certificate)
        return pair
    pair = issue_authority("corral-clients-ca")
    _trust(directory, pair.certificate)  # before the pair: a crash must leave the old CA trusted
    write_pair(certificate, key, pair)
    return pair


def front_proxy_authority(directory: Path) -> str:
    """Return the front-proxy CA (PEM) for extension API servers.  Raises PkiError.

    corral has no aggregation layer, so the CA's key is discarded and no certificate is issued.
    """
    path = directory / "front-proxy-ca.crt"
    with pki_errors(directory):
        bundle = read_bundle(path)
        if not bundle or bundle[0].not_valid_after_utc - datetime.now(UTC) < timedelta(RENEW_DAYS):
            bundle = [issue_authority("corral-front-proxy-ca").certificate]
            files.replace(path, pem(*bundle), durable=True)
        return pem(*bundle).decode()


def _trust(directory: Path, authority: x509.Certificate) -> None:
    """Add a client CA to the bundle of trusted ones, and remove expired ones."""
    path = directory / "clients.crt"
    present = read_bundle(path)
    bundle = [each for each in present if each.not_valid_after_utc > datetime.now(UTC)]
    if authority not in bundle:
        bundle.append(authority)
    if bundle != present:
        files.replace(path, pem(*bundle), durable=True)


def _secret(path: Path) -> str:
    """Load a bearer token, or create one of 256 random bits.  Raises PkiError."""
    try:
        token = path.read_bytes().strip()
    except FileNotFoundError:
        token = secrets.token_urlsafe(32).encode()
        files.replace(path, token + b"\n", durable=True)
    if not _TOKEN.fullmatch(token):
        raise PkiError(
            f"{path} holds no {path.suffix[1:] or path.stem}. Remove it to have a new one made."
        )
    return token.decode("ascii")
