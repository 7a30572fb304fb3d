"""Registry credentials: Kubernetes' pull secrets, matched to registries as a kubelet does."""

import base64
import binascii
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from corral.api.encoding import decode_as
from corral.node.images.error import ImageError, pull_failed
from corral.node.images.reference import Reference

DOCKER_CONFIG_JSON = ".dockerconfigjson"
DOCKER_CFG = ".dockercfg"


class SecretName(NamedTuple):
    """The Secret of a credential."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Credential:
    """A user and password for the registries that match ``registry``.

    registry: a host with an optional port and path prefix; ``*`` matches within a host label.
    secret: its Secret; None for a credential of the node's administrator.
    """

    registry: str
    username: str
    password: str = field(repr=False)
    secret: SecretName | None = None


class _Entry(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] = {}


def from_secret(
    name: str, data: Mapping[str, bytes], secret: SecretName | None = None
) -> tuple[Credential, ...]:
    """Parse a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.

    Entries without a user name (an identity token, a credential helper) are ignored.  Raises
    ImageError for other content; the message has the Secret's name, never its content.
    """
    try:
        if DOCKER_CONFIG_JSON in data:
            entries = decode_as(data[DOCKER_CONFIG_JSON], _Config).auths
        elif DOCKER_CFG in data:
            entries = decode_as(data[DOCKER_CFG], dict[str, _Entry])
        else:
            raise _unreadable(name)
        read = (_credential(registry, entry, secret) for registry, entry in entries.items())
        return tuple(each for each in read if each.username)
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError):
        # Not chained: the decoder's message may quote a password.
        raise _unreadable(name) from None


def _unreadable(name: str) -> ImageError:
    return pull_failed(
        f"pull secret {name!r} holds no registry credentials",
        f"make it with: kubectl create secret docker-registry {name} --docker-server=… "
        "--docker-username=… --docker-password=…",
    )


def _credential(registry: str, entry: _Entry, secret: SecretName | None) -> Credential:
    username, password = entry.username, entry.password
    if entry.auth:
        username, _, password = base64.b64decode(entry.auth).decode().partition(":")
    return Credential(_normalize(registry), username, password, secret)


def _normalize(registry: str) -> str:
    """Remove scheme and API version, as of ``https://index.docker.io/v1/``."""
    bare = registry.split("://", 1)[-1].rstrip("/")
    for version in ("/v1", "/v2"):
        bare = bare.removesuffix(version)
    host, slash, path = bare.partition("/")
    if host in {"index.docker.io", "registry-1.docker.io"}:
        host = "docker.io"
    return host + slash + path


def matching(credentials: Iterable[Credential], reference: Reference) -> tuple[Credential, ...]:
    """Return the credentials that match an image, the most specific first."""
    matched = [each for each in credentials if _matches(_normalize(each.registry), reference)]
    return tuple(sorted(matched, key=lambda each: len(each.registry), reverse=True))


def _matches(pattern: str, reference: Reference) -> bool:
    host, _, path = pattern.partition("/")
    labels, globs = reference.registry.split("."), host.split(".")
    return (
        len(labels) == len(globs)
        and all(fnmatch.fnmatchcase(label, glob) for label, glob in zip(labels, globs, strict=True))
        and (not path or f"{reference.repository}/".startswith(f"{path}/"))
    )
