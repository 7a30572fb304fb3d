"""Kubeconfig files: servers and credentials of corral and of other clusters.

Bearer tokens and client certificates are supported, inline and as files; credential plugins
(``exec``, ``auth-provider``) are refused with a message, never run.  A token of a file is read
again from time to time: those of pods are replaced long before they expire.
"""

import base64
import binascii
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral import __version__
from corral.api.errors import ApiError


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used; the message names the file, the field, and what to do."""


TOKEN_SECONDS: Final = 60.0
"""Time before a file's token is read again, as in client-go."""


class TokenFile:
    """A file with a token, as last read; a file that cannot be read leaves the last token."""

    def __init__(
        self, path: Path, token: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._token = token
        self._now = now
        self._read_at = now()

    def token(self) -> str:
        """Return the token."""
        if self._now() - self._read_at >= TOKEN_SECONDS:
            self._read_at = self._now()
            with suppress(OSError, UnicodeDecodeError):
                self._token = self._path.read_text().strip() or self._token
        return self._token


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """One context of a kubeconfig, resolved: certificates and keys are PEM."""

    server: str
    namespace: str = "default"
    token: str = field(default="", repr=False)
    token_file: TokenFile | None = None
    """Goes before ``token``, as in client-go."""
    authority: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    insecure: bool = False
    impersonated: str = ""
    """The user that requests are made as (the user's ``as``); empty for the user itself."""
    impersonated_group: str = ""
    """A group of that user (``as-groups``, of which one is supported)."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request: User-Agent, Authorization, impersonation."""
        headers = {"user-agent": f"corral/{__version__}"}
        if token := self.token if self.token_file is None else self.token_file.token():
            headers["authorization"] = f"Bearer {token}"
        if self.impersonated:
            headers["impersonate-user"] = self.impersonated
        if self.impersonated_group:
            headers["impersonate-group"] = self.impersonated_group
        return headers

    def tls(self) -> ssl.SSLContext:
        """Return a TLS context with the cluster's CA (else the system's) and the client's key."""
        if self.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's authorities
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cadata=self.authority or None)
        if self.certificate:
            # ssl reads a client certificate from files only; this one is 0600 and deleted at once.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
                pem.write(f"{self.certificate}\n{self.key}")
                pem.flush()
                context.load_cert_chain(pem.name)
        return context


def load(path: Path, context: str = "") -> Kubeconfig:
    """Read a context of a kubeconfig file, the current one unless named.

    Raises KubeconfigError.
    """
    from corral.api import yaml  # noqa: PLC0415 - a MiB that a joined node does not need

    try:
        document = yaml.load(path.read_text())
    except OSError as error:
        raise KubeconfigError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, ApiError) as error:
        raise KubeconfigError(f"{path} cannot be read as a kubeconfig: {error}") from error
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig: it holds no mapping")
    reader = _Reader(path, document)
    selected = reader.named(
        "contexts", "context", context or reader.text(document, "current-context")
    )
    cluster = reader.named("clusters", "cluster", reader.text(selected, "cluster"))
    user = reader.named("users", "user", reader.text(selected, "user"))
    for plugin in ("exec", "auth-provider"):
        if plugin in user:
            raise KubeconfigError(
                f'{path}: the user\'s "{plugin}" runs a program for credentials, which is not '
                "supported; use a token or a client certificate"
            )
    server = reader.text(cluster, "server")
    if not server:
        raise KubeconfigError(f'{path}: clusters[].cluster.server of context "{context}" is empty')
    return Kubeconfig(
        server=server.rstrip("/"),
        namespace=reader.text(selected, "namespace") or "default",
        token=reader.text(user, "token"),
        token_file=reader.token_file(user),
        authority=reader.pem(cluster, "certificate-authority"),
        certificate=reader.pem(user, "client-certificate"),
        key=reader.pem(user, "client-key"),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        impersonated=reader.text(user, "as"),
        impersonated_group=reader.group(user),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Typed access to a kubeconfig's values; errors name the file and the field."""

    path: Path
    document: Mapping[str, Any]

    def named(self, collection: str, member: str, name: str) -> Mapping[str, Any]:
        entries = self.document.get(collection)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                mapping = entry.get(member)
                return mapping if isinstance(mapping, dict) else {}
        raise KubeconfigError(f'{self.path}: {collection} has no entry named "{name}"')

    def text(self, values: Mapping[str, Any], field_name: str) -> str:
        value = values.get(field_name, "")
        if not isinstance(value, str):
            raise KubeconfigError(f'{self.path}: "{field_name}" must be text')
        return value

    def group(self, user: Mapping[str, Any]) -> str:
        groups = user.get("as-groups") or [""]
        if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], str):
            raise KubeconfigError(f'{self.path}: "as-groups" must be a list of one group')
        return groups[0]

    def file(self, values: Mapping[str, Any], field_name: str) -> str:
        name = self.text(values, field_name)
        if not name:
            return ""
        try:
            return (self.path.parent / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigError(f'{self.path}: "{field_name}": {error}') from error

    def token_file(self, user: Mapping[str, Any]) -> TokenFile | None:
        content = self.file(user, "tokenFile").strip()
        return TokenFile(self.path.parent / user["tokenFile"], content) if content else None

    def pem(self, values: Mapping[str, Any], field_name: str) -> str:
        data = self.text(values, f"{field_name}-data")
        if not data:
            return self.file(values, field_name)
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(
                f'{self.path}: "{field_name}-data" is not PEM in base64: {error}'
            ) from error
