"""What a server is known by: its files, in one directory, made where they are missing.

Keys are readable by their owner alone.  ``ensure`` makes what is missing or runs out soon and keeps
the rest, so that kubeconfigs which people copied go on working; a server that runs for months calls
``renew`` once a day.
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
    read_bundle,
    read_pair,
    told,
    write_pair,
)
from corral.pki.signing import SigningKey

RENEW_DAYS = 30
CLIENT_DAYS = 365
"""How long a client's certificate is good at most."""
_TOKEN = re.compile(rb"[!-~]{32,}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server needs to be trusted, and its administrator to be known.

    ``clients`` are the authorities by which clients' certificates are known; ``account_key`` signs
    the tokens of ServiceAccounts.
    """

    certificate: Path
    key: Path
    authority: Path
    clients: Path
    token: str
    account_key: SigningKey


def ensure(directory: Path, listening: Sequence[str] = ()) -> Identity:
    """The CA, the token, and a server's certificate for this machine and where it listens.

    A wildcard address stands for all addresses of the machine.  Raises PkiError for files that are
    damaged, do not belong together, or may be another user's work.
    """
    with told(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_strangers(directory)
        certificate, key = _server(directory, listening)
        clients_authority(directory)
        return Identity(
            certificate,
            key,
            directory / "ca.crt",
            directory / "clients.crt",
            token=_secret(directory / "token"),
            account_key=SigningKey.kept_in(directory / "service-accounts.pem"),
        )


def renew(directory: Path, listening: Sequence[str], context: ssl.SSLContext) -> bool:
    """Re-issue what runs out soon, or lacks a new address, and serve it from now on.

    Connections that are there keep what they have.  True where anything changed: the kubeconfig is
    then to be written again, since the CA may be another one.  Raises PkiError; what was served
    before is served on.
    """
    with told(directory):
        _refuse_strangers(directory)
        before = (directory / "server.crt").read_bytes()
        certificate, key = _server(directory, listening)
        clients_authority(directory)
        context.load_verify_locations(directory / "clients.crt")
        if certificate.read_bytes() == before:
            return False
        context.load_cert_chain(certificate, key)
        return True


def _refuse_strangers(directory: Path) -> None:
    """Whoever could write here could be the administrator of every machine."""
    for path in (directory, *sorted(directory.iterdir())):
        if reason := files.distrusted(path):
            raise PkiError(
                f"{path} {reason}. If you know what it holds, make it yours alone "
                f"(chown, chmod go-w {path}); else remove it to have it made anew."
            )


def _server(directory: Path, listening: Sequence[str]) -> tuple[Path, Path]:
    """The server's certificate and its key, made where what is there does not do."""
    authority = _authority(directory)
    certificate, key = directory / "server.crt", directory / "server.key"
    names = _general_names(listening)
    pair = read_pair(certificate, key)
    soon = timedelta(days=RENEW_DAYS)
    if pair is None or pair.ends_within(soon) or not pair.serves(authority, names):
        write_pair(certificate, key, issue_server(authority, names))
    return certificate, key


def _general_names(listening: Sequence[str]) -> list[x509.GeneralName]:
    """By what names the server is to be trusted; sorted, so that the same ones give the same."""
    wanted = {"127.0.0.1", "::1", "localhost", socket.gethostname(), *listening}
    if any(map(hosts.is_wildcard, listening)):
        wanted.update(hosts.addresses())
    return [general_name(name) for name in sorted(wanted) if not hosts.is_wildcard(name)]


def _authority(directory: Path) -> Pair:
    """Who certifies this server."""
    certificate, key = directory / "ca.crt", directory / "ca.key"
    pair = read_pair(certificate, key)
    if pair is None or pair.ends_within(timedelta(days=RENEW_DAYS)):
        pair = issue_authority("corral-ca")
        write_pair(certificate, key, pair)
    return pair


def clients_authority(directory: Path) -> Pair:
    """Who certifies clients: another authority, as no server is to pass for a user.

    It is replaced while what it has issued is still good, and trusted until that has ended.
    """
    certificate, key = directory / "clients-ca.crt", directory / "clients-ca.key"
    pair = read_pair(certificate, key)
    if pair is not None and not pair.ends_within(timedelta(days=CLIENT_DAYS + RENEW_DAYS)):
        _trust(directory, pair.certificate)
        return pair
    pair = issue_authority("corral-clients-ca")
    _trust(directory, pair.certificate)  # first: a crash must not take the trust in the old one
    write_pair(certificate, key, pair)
    return pair


def front_proxy_authority(directory: Path) -> str:
    """Who certifies what forwards requests in users' names to other API servers, as PEM.

    Nothing does so here, and nobody is to pass for it: the key is thrown away as it is made.
    Raises PkiError.
    """
    path = directory / "front-proxy-ca.crt"
    with told(directory):
        known = read_bundle(path)
        if not known or known[0].not_valid_after_utc - datetime.now(UTC) < timedelta(RENEW_DAYS):
            known = [issue_authority("corral-front-proxy-ca").certificate]
            files.replace(path, pem(*known), durable=True)
        return pem(*known).decode()


def _trust(directory: Path, authority: x509.Certificate) -> None:
    """Have an authority of clients among those that are trusted, and none that has ended."""
    path = directory / "clients.crt"
    known = read_bundle(path)
    lasting = [each for each in known if each.not_valid_after_utc > datetime.now(UTC)]
    if authority not in lasting:
        lasting.append(authority)
    if lasting != known:
        files.replace(path, pem(*lasting), durable=True)


def _secret(path: Path) -> str:
    """A bearer token, or a key to sign them: 256 bits at random, made when missing."""
    try:
        held = path.read_bytes().strip()
    except FileNotFoundError:
        held = secrets.token_urlsafe(32).encode()
        files.replace(path, held + b"\n", durable=True)
    if not _TOKEN.fullmatch(held):
        raise PkiError(
            f"{path} holds no {path.suffix[1:] or path.stem}. Remove it to have a new one made."
        )
    return held.decode("ascii")
